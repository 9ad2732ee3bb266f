package clients

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// handoffs is how long those who watched a node took to come back after they
// had been told that it is gone: the hand-off of a lock, from the release to
// the next one's first word.
type handoffs struct {
	mu sync.Mutex
	by map[string]*Handoff // by the first part of the path
}

// Handoff is how many hand-offs there were and how long they took in all.
type Handoff struct {
	Count int64
	Time  time.Duration
}

// telling is that a connection was told that a node it watched is gone.
type telling struct {
	at   time.Duration
	path string
}

// tell remembers that the connection is told now. Its outbox is locked.
func (s *connStat) tell(now time.Duration, path string) {
	if len(s.told) == maxTold {
		s.told = slices.Delete(s.told, 0, 1)
	}
	s.told = append(s.told, telling{now, path})
}

// cameBack counts a hand-off if the request is the first, since the client was
// told that a node is gone, about the node's place or what stands beside it. A
// request that was under way when the client was told says nothing yet. The
// outbox is locked; nearly always there is nothing to look for.
func (c *conn) cameBack(op jute.OpCode, body []byte) {
	told := c.out.stat.told
	if len(told) == 0 {
		return
	}
	path := requestPath(op, body)
	if path == "" {
		return
	}
	old := 0
	for old < len(told) && c.arrived-told[old].at > longHandoff {
		old++
	}
	told = slices.Delete(told, 0, old)
	for i, t := range told {
		dir := parent(t.path)
		if c.arrived > t.at && (path == dir || parent(path) == dir) {
			c.srv.handoffs.note(t.path, c.arrived-t.at)
			told = slices.Delete(told, i, i+1)
			break
		}
	}
	c.out.stat.told = told
	if len(told) == 0 {
		c.out.stat.told = nil
	}
}

// requestPath returns the path that a request names, of a multi the first; ""
// if it names none.
func requestPath(op jute.OpCode, body []byte) string {
	switch op {
	case jute.OpPing, jute.OpAuth, jute.OpSASL, jute.OpCloseSession, jute.OpSetWatches, jute.OpSetWatches2, jute.OpWhoAmI:
		return ""
	case jute.OpMulti, jute.OpMultiRead:
		const header = 4 + 1 + 4 // type, done, error
		body = body[min(header, len(body)):]
	}
	d := jute.NewDecoder(body)
	if path, ok := d.String(); ok && d.Err() == nil {
		return path
	}
	return ""
}

// parent returns the path of the node above.
func parent(path string) string { return path[:max(1, strings.LastIndexByte(path, '/'))] }

// Bounds: later prefixes are counted under "other", and who comes back after a
// minute was not waiting.
const (
	maxPrefixes = 32
	otherPrefix = "other"
	longHandoff = time.Minute
	maxTold     = 64 // nodes gone that one connection is remembered to have been told of
	maxPrefix   = 64
)

// Prefix returns the first part of a path, by which locks are counted.
func Prefix(path string) string {
	if i := strings.IndexByte(path[min(1, len(path)):], '/'); i >= 0 {
		path = path[:i+1]
	}
	if len(path) > maxPrefix {
		return otherPrefix
	}
	return path
}

// Label is a prefix as a label of a metric, given those that have one already.
func Label[V any](known map[string]V, prefix string) string {
	if _, ok := known[prefix]; !ok && len(known) >= maxPrefixes {
		return otherPrefix
	}
	return prefix
}

func (h *handoffs) note(path string, d time.Duration) {
	if d > longHandoff {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = make(map[string]*Handoff)
	}
	label := Label(h.by, Prefix(path))
	at := h.by[label]
	if at == nil {
		at = new(Handoff)
		h.by[strings.Clone(label)] = at
	}
	at.Count++
	at.Time += d
}

// Handoffs returns the hand-offs by the first part of the path, at most 32 and
// "other".
func (s *Server) Handoffs() map[string]Handoff {
	h := &s.handoffs
	h.mu.Lock()
	defer h.mu.Unlock()
	by := make(map[string]Handoff, len(h.by))
	for prefix, n := range h.by {
		by[prefix] = *n
	}
	return by
}
