package clients

import (
	"sync"
	"time"
)

// heardList holds the connections that the server heard from since it last told the leader. A
// connection enters it once, however much it sends.
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

// take returns the list and starts a new one. Two goroutines may call it at once: the one that follows the
// new leader, and the one that led until now.
func (h *heardList) take() []*conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.conns
	h.conns = make([]*conn, 0, len(list))
	return list
}

// alive notes that the client was not silent at that time: bytes came, or the server did not read the bytes
// that it had sent.
func (c *conn) alive(at time.Duration) {
	c.pulse.heard.Store(int64(at))
	if !c.pulse.listed.Load() && !c.readOnly { // there is no leader to be told
		c.srv.heard.add(c)
	}
}
