package conn

import "github.com/zlockd/zlockd/server/clients/outbox"

// Out returns the outbox of the connection, for tests of a server.
func (c *Conn) Out() *outbox.Outbox { return &c.out }

// Empty reports whether nothing is left of any connection or address, for tests of a server.
func (s *Shared) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns) == 0 && len(s.perAddr) == 0 && len(s.sessions) == 0
}

// Creating returns how many sessions are being created, for tests of a server.
func (s *Shared) Creating() int64 { return s.creating.Load() }
