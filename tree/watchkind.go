package tree

// WatchKind says what a watch waits for and whether it stays.
type WatchKind uint8

// The kinds of watches. Data and Child watches are used up by the first event
// they match; the others stay until they are removed.
const (
	Data       WatchKind = iota // set by getData and exists: the node itself
	Child                       // set by getChildren: the list of children, and the node's deletion
	Persistent                  // both of the above for one path
	Recursive                   // the node and every node below it, but no lists of children
)

// What a removeWatches or checkWatches request may name.
const (
	WatcherChildren   int32 = 1 // Child
	WatcherData       int32 = 2 // Data
	WatcherAny        int32 = 3 // every kind
	WatcherPersistent int32 = 4 // Persistent
	WatcherRecursive  int32 = 5 // Recursive
)

// modes is a set of kinds.
type modes uint8

const (
	dataMode       = modes(1 << Data)
	childMode      = modes(1 << Child)
	persistentMode = modes(1 << Persistent)
	recursiveMode  = modes(1 << Recursive)

	oneShot       = dataMode | childMode
	dataRegistry  = dataMode | persistentMode | recursiveMode
	childRegistry = childMode | persistentMode
)

// watcherModes returns the modes a watcher type stands for, none if it is
// unknown.
func watcherModes(watcherType int32) modes {
	switch watcherType {
	case WatcherChildren:
		return childMode
	case WatcherData:
		return dataMode
	case WatcherAny:
		return dataRegistry | childRegistry
	case WatcherPersistent:
		return persistentMode
	case WatcherRecursive:
		return recursiveMode
	}
	return 0
}

// KnownWatcherType tells whether clients may name this watcher type.
func KnownWatcherType(watcherType int32) bool { return watcherModes(watcherType) != 0 }
