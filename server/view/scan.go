package view

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/locks"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// scan is the result of one look at all locks.
type scan struct {
	zxid      int64
	at        time.Time // time on the local clock
	took      time.Duration
	locks     []recipe.Queue
	unlisted  int            // ephemeral nodes of locks that not every client may list
	listed    []recipe.Queue // the locks that every client may list; nil if that is all of them
	total     int            // ephemeral nodes
	truncated bool
	// noPrefixes says that not every client may list the children of the root.
	noPrefixes bool

	troubles
	graph, listedGraph lazyGraph
}

// lazyGraph is a wait graph that is built when it is first asked for.
type lazyGraph struct {
	once sync.Once
	*recipe.Graph
}

func (g *lazyGraph) of(v *View, locks []recipe.Queue) *recipe.Graph {
	g.once.Do(func() { g.Graph = v.confirmed(recipe.WaitGraph(locks)) })
	return g.Graph
}

func (s *scan) waitGraph(v *View) *recipe.Graph { return s.graph.of(v, s.locks) }

// seen returns the locks that a query may see, their wait graph, and the number of locks that the query may
// not see.
func (s *scan) seen(q *ask.Query) (list []recipe.Queue, graph func(*View) *recipe.Graph, hidden int) {
	if q.All || s.unlisted == 0 {
		return s.locks, s.waitGraph, 0
	}
	return s.listed, func(v *View) *recipe.Graph { return s.listedGraph.of(v, s.listed) }, s.unlisted
}

// scans keeps the newest scan for a while.
type scans struct {
	mu     sync.Mutex // held during a scan: others wait for its result
	newest *scan
	drop   *time.Timer
}

// How long a scan serves: at most freshFor while nothing has changed, otherwise costShare times as long as it
// took. So scanning costs a small part of one processor for any number of requests. View drops a scan after
// keepScan.
const (
	freshFor  = 5 * time.Second // watches change without a zxid
	costShare = 10
	keepScan  = 20 * time.Second
)

// locks returns a scan that is fresh enough.
func (v *View) locks(ctx context.Context) (*scan, error) {
	s := &v.scans
	s.mu.Lock()
	defer s.mu.Unlock()
	var zxid int64 // read before the scan, so that a change during the scan makes it old
	top := v.o.ShowAll
	v.source.View(func(st *state.State) { zxid, top = st.Zxid(), top || st.Tree().Shows("/any") })
	if n := s.newest; n != nil {
		age := time.Since(n.at)
		if age < costShare*n.took || age < freshFor && zxid == n.zxid {
			return n, nil
		}
	}
	n, err := v.scan(ctx)
	if err != nil {
		return nil, err
	}
	n.zxid, n.noPrefixes = zxid, !top
	s.newest = n
	v.told.Store(&n.troubles)
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
	if s.newest != nil && time.Since(s.newest.at) >= keepScan {
		s.newest = nil
	}
}

// scan looks at all locks.
func (v *View) scan(ctx context.Context) (*scan, error) {
	n := &scan{at: time.Now()}
	look := locks.NewScan()
	if err := v.all(ctx, look); err != nil {
		return nil, err
	}
	n.locks = look.Locks(v.source)
	unlisted := func(q recipe.Queue) bool { return q.Unlisted }
	if !v.o.ShowAll && slices.ContainsFunc(n.locks, unlisted) {
		n.listed = slices.DeleteFunc(slices.Clone(n.locks), unlisted)
		n.unlisted = len(n.locks) - len(n.listed)
	}
	n.total, n.truncated = look.Total, look.Truncated
	n.find(n.locks)
	n.took = time.Since(n.at)
	return n, nil
}

// all runs all steps of a look at locks.
func (v *View) all(ctx context.Context, look interface {
	Step(*tree.Tree) (more bool)
	Rest()
}) error {
	for more := true; more; {
		if !v.source.View(func(st *state.State) { more = look.Step(st.Tree()) }) {
			return ask.ErrNotServing
		}
		look.Rest()
		if ctx.Err() != nil {
			return ask.ErrSlow
		}
	}
	return nil
}

// lockAt looks at one lock.
func (v *View) lockAt(ctx context.Context, path string) (q recipe.Queue, at *locks.At, err error) {
	at = locks.NewAt(path)
	if err := v.all(ctx, at); err != nil {
		return q, nil, err
	}
	q, ok := at.Lock(v.source)
	if !ok {
		return q, nil, ask.NotFound("there is no node %s", ask.Clip(path))
	}
	return q, at, nil
}

// sessionsAtOnce is how many sessions eachSession looks up under one hold of the state lock.
const sessionsAtOnce = 256

// eachSession calls f, under the state lock, for each of the sessions that exists.
func (v *View) eachSession(ctx context.Context, ids []int64, f func(session.Session, *tree.Tree)) error {
	for part := range slices.Chunk(ids, sessionsAtOnce) {
		if ctx.Err() != nil {
			return ask.ErrSlow
		}
		v.source.View(func(st *state.State) {
			for _, id := range part {
				if s, ok := st.Sessions().Get(id); ok {
					f(s, st.Tree())
				}
			}
		})
	}
	return nil
}

// sessionsOf looks sessions up.
func (v *View) sessionsOf(ids map[int64]bool) map[int64]session.Session {
	found := make(map[int64]session.Session, len(ids))
	_ = v.eachSession(context.Background(), slices.Collect(maps.Keys(ids)),
		func(s session.Session, _ *tree.Tree) { found[s.ID] = s })
	return found
}
