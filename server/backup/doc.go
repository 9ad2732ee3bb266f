// Package backup writes backups of a running server's state. It sends a backup over HTTP to a user who may
// read all data, and writes backups into a directory at intervals.
package backup
