package client

import (
	"fmt"
	"github.com/zlockd/zlockd/client/recipe"
	"path"
	"strings"
)

// checkPath refuses text that cannot be the path of a lock.
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

func join(dir, name string) string { return recipe.Join(dir, name) }
func baseName(path string) string  { return recipe.Base(path) }
func parentOf(path string) string  { return recipe.Parent(path) }
