package peer

import (
	"io"
	"sync"
	"sync/atomic"
)

// sendings are the snapshots that are on their way to other servers.
type sendings struct {
	mu sync.Mutex
	to map[uint32]*sending
}

// sending is one such snapshot; raft's transport reads it.
type sending struct {
	io.Reader
	size int64
	sent atomic.Int64
}

func (s *sending) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	s.sent.Add(int64(n))
	return n, err
}

// begin notes a snapshot until done is called; what is read of it counts as sent.
func (s *sendings) begin(to uint32, size int64, r io.Reader) (_ io.Reader, done func()) {
	snap := &sending{Reader: r, size: size}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to == nil {
		s.to = map[uint32]*sending{}
	}
	s.to[to] = snap
	return snap, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.to[to] == snap {
			delete(s.to, to)
		}
	}
}

// Sending tells how much of a snapshot has been sent to a server, and how large
// it is; 0: none is on its way.
func (p *Port) Sending(to uint32) (sent, size int64) {
	p.sent.mu.Lock()
	defer p.sent.mu.Unlock()
	if s := p.sent.to[to]; s != nil {
		return s.sent.Load(), s.size
	}
	return 0, 0
}
