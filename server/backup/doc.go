// Package backup gives out the state of a running server: over HTTP to users with the right, and
// by itself into a directory, at intervals.
package backup
