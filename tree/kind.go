package tree

// Kind says what a watch waits for and whether it stays.
type Kind uint8

// The kinds of watches. Data and Child watches are used up by the first event
// they match; the others stay until they are removed.
const (
	Data       Kind = iota // set by getData and exists: the node itself
	Child                  // set by getChildren: the list of children, and the node's deletion
	Persistent             // both of the above for one path
	Recursive              // the node and every node below it, but no lists of children
)
