// Package locks reads the contenders of locks from a tree. Package client/recipe combines them into locks.
// Only ephemeral nodes are contenders.
//
// The package has no goroutine and no clock. It reads the tree in bounded pieces. The caller holds the read
// lock during each piece.
package locks
