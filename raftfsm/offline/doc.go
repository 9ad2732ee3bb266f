// Package offline moves data while no server runs on it: from and to a
// ZooKeeper, from a backup into a new data directory, from a survivor into a
// cluster of one. It also compares any two of these, and prints them.
//
// The package checks its input to the last byte before it makes anything of it, and never changes the input.
// It writes its output into a new directory, and removes the output after an error.
package offline
