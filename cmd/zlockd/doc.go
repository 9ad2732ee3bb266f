// Command zlockd is a lock server that speaks the ZooKeeper protocol. See
// docs/operations.md, or run zlockd --help.
package main
