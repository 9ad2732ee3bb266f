// Package locks reads the contenders of locks out of a tree, for package
// client/recipe to make locks of them. Only ephemeral nodes are contenders.
//
// The package is pure: it reads the tree in bounded pieces that its caller
// makes under the read lock, and asks no clock.
package locks
