// Package offline moves data while no server runs on it: from and to a
// ZooKeeper, from a backup into a new data directory, from a survivor into a
// cluster of one. It also compares any two of these, and prints them.
//
// Whatever is read is checked to its last byte before anything is made of it,
// and never changed. What is made is made in a directory that did not exist,
// and is whole or gone.
package offline
