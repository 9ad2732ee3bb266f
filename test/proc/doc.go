// Package proc runs real zlockd processes on loopback and does to them what
// happens to processes: kill -9, stop and continue, restart.
package proc
