package clients

import "sync"

// heardList holds the connections that the server heard from since it last told the leader. A
// connection enters it once, however much it sends.
type heardList struct {
	mu    sync.Mutex
	conns []*conn
	spare []*conn
}

func (h *heardList) add(c *conn) {
	if !c.listed.CompareAndSwap(false, true) {
		return
	}
	h.mu.Lock()
	h.conns = append(h.conns, c)
	h.mu.Unlock()
}

// swap returns the list and starts a new one. The result is valid until the
// next swap.
func (h *heardList) swap() []*conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.conns
	h.conns, h.spare = h.spare[:0], list
	return list
}
