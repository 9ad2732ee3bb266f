package view

import "strings"

// Bounds of the first parts of paths that metrics are kept under: later ones are
// counted under "other".
const (
	maxPrefixes = 32
	maxPrefix   = 64
	otherPrefix = "other"
)

// prefix returns the first part of a path, by which locks are counted.
func prefix(path string) string {
	if i := strings.IndexByte(path[min(1, len(path)):], '/'); i >= 0 {
		path = path[:i+1]
	}
	if len(path) > maxPrefix {
		return otherPrefix
	}
	return path
}

// label returns a prefix as a label of a metric, given those that have one already.
func label[V any](known map[string]V, prefix string) string {
	if _, ok := known[prefix]; !ok && len(known) >= maxPrefixes {
		return otherPrefix
	}
	return prefix
}
