package conn

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/watchers"
)

// registry holds the present connections. Its lock is held only for operations on the maps.
type registry struct {
	mu       sync.Mutex
	conns    map[*Conn]struct{}
	added    uint64 // number of connections so far
	perAddr  map[string]*address
	sessions map[int64]*Conn // the newest connection of each session here
	maxConns int             // from the options; Change replaces it

	heard heardList
}

func (g *registry) init() {
	g.conns, g.perAddr = make(map[*Conn]struct{}), make(map[string]*address)
	g.sessions = make(map[int64]*Conn)
}

// address holds the counts that the connections from one address share.
type address struct {
	watchers.Address
	ids      *[]jute.ID   // what a client has before it proves an identity; all clients of the address share it
	creating atomic.Int64 // how many sessions these connections are creating; see admission.creating
	conns    map[*Conn]struct{}
}

// add registers a connection, unless there are too many.
func (s *Shared) add(c *Conn) bool {
	problem := s.tryAdd(c)
	if problem != "" { // log without the lock, because the log may be slow
		s.refused(c, "connection refused", problem)
	}
	return problem == ""
}

func (s *Shared) tryAdd(c *Conn) (problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.perAddr[c.from.Host]
	switch {
	case s.ctx.Err() != nil:
		return "server stopping"
	case s.maxConns > 0 && len(s.conns) >= s.maxConns:
		return "too many connections"
	case s.Shares.Bound() && from != nil && len(from.conns) >= s.Shares.Conns():
		return "too many connections from this address"
	}
	s.added++
	c.number = s.added
	s.conns[c] = struct{}{}
	if from == nil {
		from = c.from
		from.ids, from.conns = identity.Unproved(from.Host, s.Options.SkipACL), make(map[*Conn]struct{})
		s.perAddr[c.from.Host] = from
	}
	from.conns[c] = struct{}{}
	c.from = from
	c.watcher.From = &from.Address
	c.proof.IDs.Store(from.ids)
	s.wg.Add(1)
	return ""
}

// remove drops a connection that has ended.
func (s *Shared) remove(c *Conn) {
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

// forget drops an address that has neither connections nor debt. The registry is locked.
func (s *Shared) forget(from *address) {
	if owed := s.Shares.Settle(&from.Account, s.Now()); owed > 0 && s.ctx.Err() == nil {
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

// claim makes c the connection of a session, and returns the connection that c replaces. `ok` is false if c
// has already ended.
func (s *Shared) claim(c *Conn, id int64) (older *Conn, ok bool) {
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

// Of returns the connection of a session. It returns nil if the session has no connection to this server.
func (g *registry) Of(session int64) *Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sessions[session]
}

// All returns all present connections, the oldest first.
func (g *registry) All() []*Conn {
	g.mu.Lock()
	list := slices.AppendSeq(make([]*Conn, 0, len(g.conns)), maps.Keys(g.conns))
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
func byAge(list []*Conn) []*Conn {
	slices.SortFunc(list, func(a, b *Conn) int { return cmp.Compare(a.number, b.number) })
	return list
}

// heardList holds the connections from which bytes came since the last report to the leader. A connection is
// in the list only once, however much it sends.
type heardList struct {
	mu    sync.Mutex
	conns []*Conn
}

func (h *heardList) add(c *Conn) {
	if !c.pulse.listed.CompareAndSwap(false, true) {
		return
	}
	h.mu.Lock()
	h.conns = append(h.conns, c)
	h.mu.Unlock()
}

// take returns the list and starts a new one. While a leadership of this server ends, two goroutines may call
// take at once: the one of that leadership, and the one of the link to the new leader.
func (h *heardList) take() []*Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.conns
	h.conns = make([]*Conn, 0, len(list))
	return list
}

// SessionEnded closes the connection of a session that has ended. The client first gets the events that the
// end has caused, and the reply if it asked for the end. The goroutine that applies the log calls
// SessionEnded.
func (s *Shared) SessionEnded(e *state.Ending) {
	c := s.Of(e.Session.ID)
	heard := time.Duration(-1)
	if c != nil {
		heard = time.Duration(c.pulse.heard.Load())
	}
	s.Observed.SessionEnded(e, heard)
	if s.Options.Ended != nil {
		s.Options.Ended(e.Session.ID, e.Events)
	}
	if c == nil {
		return
	}
	c.pulse.retired.Store(true)
	c.out.Lock()
	defer c.out.Unlock()
	if c.out.Closing() && e.Cause == state.EndClosed {
		return // the client asked for this end: the outcome of its request follows, and ends the connection
	}
	c.out.End(ends.Gone)
	c.out.Touch()
}

// SessionMoved closes the connection of a session that has attached elsewhere. The goroutine that applies the
// log calls SessionMoved.
func (s *Shared) SessionMoved(id int64, gen uint32) {
	s.Observed.SessionCame(id) // the session is connected elsewhere: forget how its connection here ended
	if c := s.Of(id); c != nil && c.gen < gen {
		c.retire(ends.Moved)
	}
}

// SendAway closes every connection that has a session or is about to have one.
func (s *Shared) SendAway() {
	for _, c := range s.All() {
		if phase(c.phase.Load()) >= phaseConnect {
			c.out.Kill(ends.Serving)
		}
	}
	s.Outboxes.Kick()
}

// Heard appends the sessions from which bytes came since the last call; if `all` is true, it appends every
// session here. It treats a client that waits for an answer as heard just now, however old its last byte is:
// the server reads the client's next bytes only after that answer.
func (s *Shared) Heard(touches []state.Touch, all bool) []state.Touch {
	if all {
		s.mu.Lock()
		for _, c := range s.sessions {
			s.heard.add(c)
		}
		s.mu.Unlock()
	}
	now := s.Now()
	for _, c := range s.heard.take() {
		c.pulse.listed.Store(false) // before `heard` is read: bytes that arrive later list it again
		if c.pulse.retired.Load() {
			continue
		}
		age := now - time.Duration(c.pulse.heard.Load())
		if c.owed() {
			age = 0
			s.heard.add(c)
		}
		touches = append(touches, state.Touch{Session: c.session, Age: uint32(max(age, 0).Milliseconds())})
	}
	return touches
}

// At the end of each batch, the goroutine that applies the log calls Applied.
func (s *Shared) Applied() {
	s.batch = 0
	s.Outboxes.Kick()
}

// refused() logs and counts a client that a limit has refused.
func (s *Shared) refused(c *Conn, what, problem string) {
	s.Metrics.ConnectionRejected.Add(1)
	s.Observed.Refuse(c.from.Host, problem)
	s.Log.Of(c.from.Host, slog.LevelWarn, what, "reason", problem)
}

// Stop closes every connection without waiting, and lets no other one in.
func (s *Shared) Stop() {
	s.cancel()
	for _, c := range s.All() {
		c.out.Close(ends.Stopped)
	}
}

// Stopped returns a channel that is closed when the server stops.
func (s *Shared) Stopped() <-chan struct{} { return s.ctx.Done() }

// Wait waits, after Stop, until every goroutine has ended.
func (s *Shared) Wait() {
	s.Outboxes.Stop()
	s.Resting.Stop()
	s.wg.Wait()
}
