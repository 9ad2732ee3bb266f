// Package look finds the locks and sessions in a server's state. It takes the state lock only for a part of
// the work at a time. The result of one scan of all locks serves many requests, until the state has changed
// or the result is old. The more a scan costs, the longer its result is used.
package look

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/recipe/waits"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/locks"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// Troubles lists the problems with the locks of one scan.
type Troubles struct {
	At    time.Time
	Twice int // number of locks that two contenders hold at a time, although only one may
	Over  int // number of holders that have exceeded their own maximum hold
}

func (t *Troubles) find(list []recipe.Queue) {
	t.At = time.Now()
	for i := range list {
		if list[i].HeldTwice {
			t.Twice++
		}
		t.Over += list[i].Over()
	}
}

// Source is the server whose locks and sessions a looker finds.
type Source interface {
	turns.Watches
	// View runs f under the read side of the state lock, if there is a state.
	View(f func(*state.State)) bool
}

// Looker looks at the locks and sessions of a state, in bounded pieces. Any goroutine may use it.
type Looker struct {
	source         Source
	showAll        bool // every client sees all names
	scans          scans
	newestTroubles atomic.Pointer[Troubles]
}

// New returns a looker. If `showAll` is true, every client sees all names.
func New(from Source, showAll bool) *Looker { return &Looker{source: from, showAll: showAll} }

// Told returns the troubles that the newest scan has found. It returns nil before the first scan.
func (l *Looker) Told() *Troubles { return l.newestTroubles.Load() }

// Scan is the result of one look at all locks.
type Scan struct {
	zxid      int64
	At        time.Time // time on the local clock
	Took      time.Duration
	Locks     []recipe.Queue
	unlisted  int            // number of locks that not every client may list
	listed    []recipe.Queue // the locks that every client may list; nil if every client may list all locks
	Total     int            // number of ephemeral nodes
	Truncated bool
	// NoPrefixes says that not every client may list the children of the root.
	NoPrefixes bool

	Troubles
	graph, listedGraph lazyGraph
	search             sync.Once // sets noCycle
	noCycle            bool      // no contenders wait for each other
	by                 *Looker
}

// lazyGraph is a wait graph that is built on first use.
type lazyGraph struct {
	once sync.Once
	*recipe.Graph
}

func (g *lazyGraph) of(l *Looker, locks []recipe.Queue) *recipe.Graph {
	g.once.Do(func() { g.Graph = l.Confirmed(waits.Graph(locks)) })
	return g.Graph
}

// WaitGraph returns the wait graph of all locks.
func (s *Scan) WaitGraph() *recipe.Graph { return s.graph.of(s.by, s.Locks) }

// Suspected returns the number of suspected deadlocks. It describes the waits only if there may be one, so
// that metrics cost little in the ordinary case.
func (s *Scan) Suspected() int {
	s.search.Do(func() { s.noCycle = waits.Cycles(s.Locks) == 0 })
	if s.noCycle {
		return 0
	}
	return s.WaitGraph().CycleCount
}

// Seen returns what an answer may show: the locks, a function that returns their wait graph, and the number
// of locks that are left out. If `all` is true, it leaves out none.
func (s *Scan) Seen(all bool) (list []recipe.Queue, graph func() *recipe.Graph, hidden int) {
	if all || s.unlisted == 0 {
		return s.Locks, s.WaitGraph, 0
	}
	return s.listed, func() *recipe.Graph { return s.listedGraph.of(s.by, s.listed) }, s.unlisted
}

// scans keeps the newest scan, so that several requests can use it.
type scans struct {
	mu     sync.Mutex // held during a scan: other requests wait for its result
	newest *Scan
	drop   *time.Timer
}

// A scan may be used for costShare times as long as it took. It may be used for FreshFor, if that is longer
// and the state has not changed. So however many requests come, scanning costs only a small part of one
// processor. After keepScan an unused scan is dropped, to free its memory.
const (
	FreshFor  = 5 * time.Second // no longer: even if nothing is written, clients set and remove watches
	costShare = 10
	keepScan  = 20 * time.Second
)

// Locks returns a scan that is fresh enough.
func (l *Looker) Locks(ctx context.Context) (*Scan, error) {
	s := &l.scans
	s.mu.Lock()
	defer s.mu.Unlock()
	var zxid int64 // read before the scan: if the state changes while the scan runs, the result counts as old
	top := l.showAll
	l.source.View(func(st *state.State) { zxid, top = st.Zxid(), top || st.Tree().Shows("/any") })
	if n := s.newest; n != nil {
		age := time.Since(n.At)
		if age < costShare*n.Took || age < FreshFor && zxid == n.zxid {
			return n, nil
		}
	}
	n, err := l.scan(ctx)
	if err != nil {
		return nil, err
	}
	n.zxid, n.NoPrefixes = zxid, !top
	s.newest = n
	l.newestTroubles.Store(&n.Troubles)
	if s.drop == nil {
		s.drop = time.AfterFunc(keepScan, s.forget)
	} else {
		s.drop.Reset(keepScan)
	}
	return n, nil
}

func (s *scans) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest != nil && time.Since(s.newest.At) >= keepScan {
		s.newest = nil
	}
}

// scan() looks at all locks.
func (l *Looker) scan(ctx context.Context) (*Scan, error) {
	n := &Scan{At: time.Now(), by: l}
	look := locks.NewScan()
	if err := l.all(ctx, look); err != nil {
		return nil, err
	}
	n.Locks = look.Locks(l.source)
	unlisted := func(q recipe.Queue) bool { return q.Unlisted }
	if !l.showAll && slices.ContainsFunc(n.Locks, unlisted) {
		n.listed = slices.DeleteFunc(slices.Clone(n.Locks), unlisted)
		n.unlisted = len(n.Locks) - len(n.listed)
	}
	n.Total, n.Truncated = look.Total, look.Truncated
	n.find(n.Locks)
	n.Took = time.Since(n.At)
	return n, nil
}

// all() calls Step, each time under the state lock, and then Rest, until Step returns false.
func (l *Looker) all(ctx context.Context, look interface {
	Step(*tree.Tree) (more bool)
	Rest()
}) error {
	for more := true; more; {
		if !l.source.View(func(st *state.State) { more = look.Step(st.Tree()) }) {
			return ask.ErrNotServing
		}
		look.Rest()
		if ctx.Err() != nil {
			return ask.ErrSlow
		}
	}
	return nil
}

// At looks at one lock.
func (l *Looker) At(ctx context.Context, path string) (q recipe.Queue, at *locks.At, err error) {
	at = locks.NewAt(path)
	if err := l.all(ctx, at); err != nil {
		return q, nil, err
	}
	q, ok := at.Lock(l.source)
	if !ok {
		return q, nil, ask.NotFound("there is no node %s", ask.Clip(path))
	}
	return q, at, nil
}

// SessionsAtOnce is how many sessions Each looks up under one hold of the state lock.
const SessionsAtOnce = 256

// Each calls f for the sessions with these ids. It skips ids of sessions that no longer exist. f runs under
// the state lock.
func (l *Looker) Each(ctx context.Context, ids []int64, f func(session.Session, *tree.Tree)) error {
	for part := range slices.Chunk(ids, SessionsAtOnce) {
		if ctx.Err() != nil {
			return ask.ErrSlow
		}
		l.source.View(func(st *state.State) {
			for _, id := range part {
				if s, ok := st.Sessions().Get(id); ok {
					f(s, st.Tree())
				}
			}
		})
	}
	return nil
}

// Sessions returns the sessions with these ids, as far as they exist.
func (l *Looker) Sessions(ids map[int64]bool) map[int64]session.Session {
	found := make(map[int64]session.Session, len(ids))
	_ = l.Each(context.Background(), slices.Collect(maps.Keys(ids)),
		func(s session.Session, _ *tree.Tree) { found[s.ID] = s })
	return found
}
