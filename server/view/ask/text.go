package ask

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/server/view/answer"
)

// maxText is how many bytes of a name or path an answer shows.
const maxText = 1 << 10

// Clip turns bytes that clients chose into UTF-8 text of bounded length.
func Clip(s string) string {
	if len(s) > maxText {
		s = recipe.CutText(s, maxText) + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Shown turns bytes that clients chose into text for people.
func Shown(s string) string { return answer.Visible(Clip(s)) }

// Href returns the URL of a path, whatever bytes it has; empty if the path is too long.
func Href(dir, path string) string {
	if len(path) > 4*maxText {
		return ""
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return dir + strings.Join(parts, "/")
}

// Thousands writes a number with commas.
func Thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
