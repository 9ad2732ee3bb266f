// Package locks tells which locks there are in a tree: who holds them, who
// waits for whom, and since when.
//
// It knows the names that the recipes of Curator, kazoo, go-zookeeper,
// ZooKeeper's own C and Java recipes, the textbooks and package client give to
// their nodes. Only ephemeral nodes are contenders. What the names do not tell
// is told by who watches what; what neither tells is called unknown.
//
// The package is pure: it reads the tree in bounded pieces that its caller
// makes under the read lock, and asks no clock.
package locks
