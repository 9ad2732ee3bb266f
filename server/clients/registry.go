package clients

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/watchers"
)

// registry holds the present connections. Its lock is held only for operations on the maps.
type registry struct {
	mu       sync.Mutex
	conns    map[*conn]struct{}
	added    uint64 // connections so far
	perAddr  map[string]*address
	sessions map[int64]*conn // the newest connection of each session here
	maxConns int             // from the options; Change replaces it

	heard heardList
}

func (g *registry) init() {
	g.conns, g.perAddr = make(map[*conn]struct{}), make(map[string]*address)
	g.sessions = make(map[int64]*conn)
}

// address holds the counts that the connections from one address share.
type address struct {
	watchers.Address
	ids      *[]jute.ID   // the identities of clients without a proved identity
	creating atomic.Int64 // see admission.creating
	conns    map[*conn]struct{}
}

// add registers a connection, unless there are too many.
func (s *shared) add(c *conn) bool {
	problem := s.tryAdd(c)
	if problem != "" { // log without the lock, because the log may be slow
		s.refused(c, "connection refused", problem)
	}
	return problem == ""
}

func (s *shared) tryAdd(c *conn) (problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.perAddr[c.from.Host]
	switch {
	case s.ctx.Err() != nil:
		return "server stopping"
	case s.maxConns > 0 && len(s.conns) >= s.maxConns:
		return "too many connections"
	case s.shares.Bound() && from != nil && len(from.conns) >= s.shares.Conns():
		return "too many connections from this address"
	}
	s.added++
	c.number = s.added
	s.conns[c] = struct{}{}
	if from == nil {
		from = c.from
		from.ids, from.conns = identity.Unproved(from.Host, s.o.SkipACL), make(map[*conn]struct{})
		s.perAddr[c.from.Host] = from
	}
	from.conns[c] = struct{}{}
	c.from = from
	c.watcher.From = &from.Address
	c.proof.ids.Store(from.ids)
	s.wg.Add(1)
	return ""
}

// remove drops a connection that has ended.
func (s *shared) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.removed = true
	delete(s.conns, c)
	from := s.perAddr[c.from.Host]
	if delete(from.conns, c); len(from.conns) == 0 {
		s.forget(from)
	}
	if s.sessions[c.session] == c {
		delete(s.sessions, c.session)
	}
}

// forget drops an address without connections, if it has no debt. The registry is locked.
func (s *shared) forget(from *address) {
	if owed := s.shares.Settle(&from.Account, s.now()); owed > 0 && s.ctx.Err() == nil {
		time.AfterFunc(time.Second, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.perAddr[from.Host] == from && len(from.conns) == 0 {
				s.forget(from)
			}
		})
		return
	}
	delete(s.perAddr, from.Host)
}

// claim makes c the connection of a session and returns the one that it replaces. ok is false if c has
// already ended.
func (s *shared) claim(c *conn, id int64) (older *conn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.removed {
		return nil, false
	}
	older = s.sessions[id]
	s.sessions[id] = c
	c.session = id
	s.Observed.SessionCame(id)
	return older, true
}

// connOf returns the connection of a session at this server, or nil if there is none.
func (g *registry) connOf(session int64) *conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sessions[session]
}

// all returns all present connections, the oldest first.
func (g *registry) all() []*conn {
	g.mu.Lock()
	list := slices.AppendSeq(make([]*conn, 0, len(g.conns)), maps.Keys(g.conns))
	g.mu.Unlock()
	return byAge(list)
}

// watchersFrom returns the connections from one address.
func (g *registry) watchersFrom(host string) (list []*watchers.Watcher) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if from := g.perAddr[host]; from != nil {
		for c := range from.conns {
			list = append(list, &c.watcher)
		}
	}
	return list
}

// byAge sorts connections by age instead of Go's random order of maps, so that a simulated run can be
// repeated.
func byAge(list []*conn) []*conn {
	slices.SortFunc(list, func(a, b *conn) int { return cmp.Compare(a.number, b.number) })
	return list
}

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
