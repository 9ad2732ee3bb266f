// Package backup writes backups of a running server's state. It sends one over HTTP to a user with the right
// to it. It also writes one into a directory at intervals.
package backup
