// Package waits builds the graph of who waits for whom over several locks, and finds the cycles in it.
package waits
