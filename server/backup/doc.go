// Package backup gives out the state of a running server: to whoever asks over
// HTTP and may, and by itself into a directory, at intervals.
package backup
