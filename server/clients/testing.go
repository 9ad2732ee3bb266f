package clients

import "github.com/zlockd/zlockd/server/clients/outbox"

// For tests of the whole server.

// Out returns the outbox of the connection.
func (c *conn) Out() *outbox.Outbox { return &c.out }

// Empty reports whether nothing is left of any connection.
func (g *registry) Empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns) == 0 && len(g.perAddr) == 0 && len(g.sessions) == 0
}
