// Package offline moves data while no server uses it: from and to a ZooKeeper, from a backup into a new data
// directory, and from a surviving server into a cluster of one server. It also compares and prints such data.
//
// The package checks its whole input before it uses any of it, and never changes the input. It writes its
// output into a new directory, and removes the output after an error.
package offline
