package report

import (
	"strconv"
)

// maxListed bounds the bytes that a status's lists take in an answer. So no answer exceeds 50 MB, however
// large the tree and however many clients.
const maxListed = 45_000_000

// How many bytes an entry of a list takes at most.
const (
	ListedConn    = 1000
	ListedSession = 100
	listedPath    = 30 // without the path itself; see ListedPath
)

// Fits reports whether a list may have another entry of `bytes` bytes. If not, it notes in the status that
// the list is not whole; `total` is how many entries there are, and `what` is what they are.
func (s *Status) Fits(what string, total, bytes int) bool {
	if s.listed+bytes > maxListed {
		if s.Truncated == "" {
			s.Truncated = "too many: " + strconv.Itoa(total) + " " + what + ", of which only some are shown"
		}
		return false
	}
	s.listed += bytes
	return true
}

// ListedPath returns how many bytes a path takes in a list.
func ListedPath(path string) int {
	n := listedPath
	for i := range len(path) {
		switch c := path[i]; {
		case c < ' ':
			n += 6
		case c == '"' || c == '\\':
			n += 2
		case c >= 0x80:
			n += 3 // if it is not part of UTF-8, the answer shows U+FFFD, which has three bytes
		default:
			n++
		}
	}
	return n
}
