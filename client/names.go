package client

import (
	"fmt"
	"path"
	"strings"
)

// checkPath refuses what cannot be the path of a lock.
func checkPath(p string) error {
	why := ""
	switch {
	case !strings.HasPrefix(p, "/"):
		why = "is not absolute"
	case p == "/":
		why = "is the root"
	case path.Clean(p) != p:
		why = "is not canonical"
	case strings.ContainsRune(p, 0):
		why = "has a zero byte"
	default:
		return nil
	}
	return fmt.Errorf("%w: path %q %s", ErrInvalid, p, why)
}

// join appends a name to a path.
func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// baseName is what follows the last slash.
func baseName(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

// parentOf is what precedes the last slash.
func parentOf(p string) string {
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return "/"
}
