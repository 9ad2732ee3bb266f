package bounds

import (
	"strings"
	"unicode/utf8"
)

// ValidPath reports whether path may name a node. It is the full check for creates, setData, setACL and
// check. It refuses a path beyond MaxPath or MaxDepth, so walking along a valid path is cheap.
func ValidPath(path string) bool {
	return ShortPath(path) && WellFormed(path)
}

func ShortPath(path string) bool {
	return len(path) <= MaxPath && strings.Count(path, "/") <= MaxDepth
}

// WellFormed makes the checks of ValidPath, except those for MaxPath and MaxDepth.
func WellFormed(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	if path == "/" {
		return true
	}
	name := 1 // where the current name begins
	for i := 1; i < len(path); {
		c := path[i]
		switch {
		case c == '/':
			if !validName(path[name:i]) {
				return false
			}
			i++
			name = i
		case c < 0x20 || c == 0x7f:
			return false
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRuneInString(path[i:])
			if !validRune(r) {
				return false
			}
			i += n
		}
	}
	return validName(path[name:])
}

func validName(name string) bool { return name != "" && name != "." && name != ".." }

// validRune judges characters beyond ASCII. ZooKeeper looks at UTF-16 units and refuses surrogates, and so
// every character outside the basic plane. Bad UTF-8 decodes to U+FFFD, which is refused as well.
func validRune(r rune) bool {
	return r > 0x9f && r < 0xd800 || r > 0xf8ff && r < 0xfff0
}

// SplitPath cuts path at its last slash. The parent of a name under the root is "", which names the root as
// well. SplitPath is also the weak check of create and delete: `ok` means that there is a slash and no NUL.
func SplitPath(path string) (parent, name string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 || strings.IndexByte(path, 0) >= 0 {
		return "", "", false
	}
	return path[:i], path[i+1:], true
}

// ParentPath returns the parent of path as events name it. The parent of "/" is "/".
func ParentPath(path string) string {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return "/"
	}
	return path[:i]
}
