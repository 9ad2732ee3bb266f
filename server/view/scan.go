package view

import (
	"context"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/locks"
	"github.com/zlockd/zlockd/session"
)

// scan is the result of one look at all locks.
type scan struct {
	zxid      int64
	at        time.Time // on the local clock
	took      time.Duration
	locks     []recipe.Queue
	total     int // ephemeral nodes
	truncated bool

	graphOnce sync.Once
	graph     *recipe.Graph
}

func (s *scan) waitGraph(v *View) *recipe.Graph {
	s.graphOnce.Do(func() { s.graph = v.confirmed(recipe.WaitGraph(s.locks)) })
	return s.graph
}

// scans keeps the newest scan for a while.
type scans struct {
	mu     sync.Mutex // held during a scan: others wait for its result
	newest *scan
	drop   *time.Timer
}

// How long a scan serves: while nothing has changed, at most freshFor; otherwise costShare times
// as long as it took, so that scanning costs a small part of one processor however many requests
// ask. View forgets a scan after keepScan.
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
	if n := s.newest; n != nil {
		age := time.Since(n.at)
		var zxid int64
		v.source.View(func(st *state.State) { zxid = st.Zxid() })
		if age < costShare*n.took || age < freshFor && zxid == n.zxid {
			return n, nil
		}
	}
	n, err := v.scan(ctx)
	if err != nil {
		return nil, err
	}
	s.newest = n
	if s.drop != nil {
		s.drop.Stop()
	}
	s.drop = time.AfterFunc(keepScan, s.forget)
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
	for more := true; more; {
		ok := v.source.View(func(st *state.State) {
			more = look.Step(st.Tree())
			n.zxid = st.Zxid()
		})
		if !ok {
			return nil, errNotServing
		}
		look.Rest()
		if ctx.Err() != nil {
			return nil, errSlow
		}
	}
	n.locks = look.Locks(v.source)
	n.total, n.truncated = look.Total, look.Truncated
	n.took = time.Since(n.at)
	return n, nil
}

// lockAt looks at one lock.
func (v *View) lockAt(ctx context.Context, path string) (q recipe.Queue, at *locks.At, err error) {
	at = locks.NewAt(path)
	for more := true; more; {
		if !v.source.View(func(st *state.State) { more = at.Step(st.Tree()) }) {
			return q, nil, errNotServing
		}
		at.Rest()
		if ctx.Err() != nil {
			return q, nil, errSlow
		}
	}
	q, ok := at.Lock(v.source)
	if !ok {
		return q, nil, notFound("there is no node %s", clip(path))
	}
	return q, at, nil
}

// sessionsAtOnce is how many sessions sessionsOf looks up under one hold of the state lock.
const sessionsAtOnce = 256

// sessionsOf looks sessions up.
func (v *View) sessionsOf(ids map[int64]bool) map[int64]session.Session {
	found := make(map[int64]session.Session, len(ids))
	list := make([]int64, 0, sessionsAtOnce)
	look := func() {
		v.source.View(func(st *state.State) {
			for _, id := range list {
				if s, ok := st.Sessions().Get(id); ok {
					found[id] = s
				}
			}
		})
		list = list[:0]
	}
	for id := range ids {
		if list = append(list, id); len(list) == sessionsAtOnce {
			look()
		}
	}
	look()
	return found
}
