package clients

import (
	"sync"
	"time"
)

// heardList holds the connections from which bytes came since the last report to the leader. A connection is
// in the list only once, however much it sends.
type heardList struct {
	mu    sync.Mutex
	conns []*conn
}

func (h *heardList) add(c *conn) {
	if !c.pulse.listed.CompareAndSwap(false, true) {
		return
	}
	h.mu.Lock()
	h.conns = append(h.conns, c)
	h.mu.Unlock()
}

// take returns the list and starts a new one. Two goroutines may call it at once: that of the link to the new
// leader, and that of this server's own leadership while it ends.
func (h *heardList) take() []*conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.conns
	h.conns = make([]*conn, 0, len(list))
	return list
}

// alive records that the client was not silent at that time: bytes came, or the server did not read the bytes
// that the client had sent.
func (c *conn) alive(at time.Duration) {
	c.pulse.heard.Store(int64(at))
	if !c.pulse.listed.Load() && !c.readOnly { // a read-only session has no leader to report to
		c.srv.heard.add(c)
	}
}
