// Package locks finds contenders of locks in a tree: only ephemeral nodes can be contenders. Package
// client/recipe tells which locks they form.
//
// The package has no goroutine and no clock. It reads the tree in parts. The caller holds the read lock for
// each part.
package locks
