// Package treetest holds a reference model of package tree, and the means to make up operations
// and to compare. The tests of the tree itself and of everything above it check against the model.
//
// A [Model] keeps its nodes in one map by path, copies all of it for a multi and scans all of it
// for a list of children. It is slow and should be easy to believe; where the tree and the model
// disagree, the specification decides which of them is wrong. It shares three things with the
// tree, which have tables of their own there: tree.ValidPath, tree.FixACL and tree.Allowed.
package treetest
