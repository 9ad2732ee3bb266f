// Package observe keeps figures about clients, which operators see. Connections report to it: each request,
// and the end of each connection and session. Clients are served without it in the same way. Whatever names
// clients choose, its memory is bounded.
package observe

import (
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/metrics"
)

// Clients holds the figures that a server keeps about its clients.
type Clients struct {
	metrics *metrics.Set
	start   time.Time        // the moment from which the server's clock counts
	wall    func() time.Time // the clock for times that people see
	follow  func(*Request)

	gone  recent // counts of connections that have ended, by address
	ended endedSessions
	lost  lostConns

	mu      sync.Mutex // guards the fields below
	down    time.Time  // since when the server does not serve clients; zero: it serves them
	downs   []Down
	refused map[string]Refusal // the newest refusal by address
}

// Init makes the zero value ready for use. The server's clock counts from `start`; wall() is the clock for
// times that people see. follow(), if not nil, is called with each request; see Followed.
func (c *Clients) Init(m *metrics.Set, start time.Time, wall func() time.Time, follow func(*Request)) {
	c.metrics, c.start, c.wall, c.follow, c.ended.news = m, start, wall, follow, make(chan struct{}, 1)
}

func (c *Clients) now() time.Duration { return time.Since(c.start) }

// Begin returns a Request for a log to follow. The connection fills it in, and passes it to Followed at the
// end. It returns nil if no log follows requests.
func (c *Clients) Begin(op jute.OpCode, body []byte) *Request {
	if c.follow == nil {
		return nil
	}
	return &Request{Op: op, Body: body}
}

// Followed passes a request to the function follow() of Init: before the answer is sent or, if the connection
// has ended, after the request was carried out. follow() must not block, because the caller may hold the
// state lock. The slices of the request are valid only during the call.
func (c *Clients) Followed(r *Request) { c.follow(r) }

// ConnEnded counts a connection that had a session.
func (c *Clients) ConnEnded(host string, did Count) { c.gone.Add(host, did, c.now()) }

// GoneClients returns the counts of connections that ended in the last minute or two, by address.
func (c *Clients) GoneClients() map[string]Count {
	return c.gone.Counts(c.now())
}

// Down is a time in which this server served no clients, for example because of an election, or because its
// network was cut.
type Down struct{ Since, Until time.Time }

// Refusal says when and why a limit last refused a connection from an address.
type Refusal struct {
	Time time.Time
	Why  string
}

const (
	keptDowns    = 32
	keptRefusals = 1000
)

// NoteServing records that this server begins or stops to serve clients.
func (c *Clients) NoteServing(serve bool) {
	now := c.wall()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !serve && c.down.IsZero():
		c.down = now
	case serve && !c.down.IsZero():
		if len(c.downs) == keptDowns {
			c.downs = append(c.downs[:0], c.downs[1:]...)
		}
		c.downs = append(c.downs, Down{c.down, now})
		c.down = time.Time{}
	}
}

// Refuse notes that a limit refused a connection.
func (c *Clients) Refuse(addr, why string) {
	now := c.wall()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil || len(c.refused) >= keptRefusals {
		c.refused = map[string]Refusal{}
	}
	c.refused[addr] = Refusal{now, why}
}

// Downs returns when this server did not serve clients, the oldest time first.
func (c *Clients) Downs() []Down {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Down(nil), c.downs...)
}

// Refused returns the newest refusal of a connection from an address.
func (c *Clients) Refused(addr string) (Refusal, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.refused[addr]
	return r, ok
}
