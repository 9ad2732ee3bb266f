package report

import (
	"strconv"
)

// maxListed is how many bytes the lists of a status may take in an answer. It keeps answers, and their
// memory, below 50 MB for every tree and any number of clients.
const maxListed = 45_000_000

// The most bytes that an entry of a list can take.
const (
	ListedConn    = 1000
	ListedSession = 100
	listedPath    = 30 // bytes of an entry without the path; see ListedPath
)

// Fits reports whether the answer has room for another entry of `bytes` bytes. If not, it notes that the list
// is cut. `total` is the number of entries in the whole list, and `what` names them.
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
			n += 3 // the answer shows a byte that is no UTF-8 as U+FFFD
		default:
			n++
		}
	}
	return n
}
