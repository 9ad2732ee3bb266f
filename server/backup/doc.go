// Package backup takes backups of a running server. It sends one over HTTP if the super user asks for it, and
// writes one into a directory in each interval.
package backup
