package view

import (
	"context"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
)

// reach is how far the members were when a request last wanted to know. One goroutine asks the
// other servers for all requests that poll, so no request waits long for a server that does not
// answer.
type reach struct {
	asked chan struct{}

	mu    sync.Mutex
	all   map[uint32]status.Member
	at    time.Time     // by the monotonic clock
	fresh chan struct{} // closed when all is replaced
}

const (
	reachRest  = time.Second            // between two questions
	reachStale = 4 * time.Second        // older answers do not count
	reachWait  = 500 * time.Millisecond // for the answer to the first question
)

func newReach() reach { return reach{asked: make(chan struct{}, 1), fresh: make(chan struct{})} }

// watchMembers asks for the members whenever a request wants to know.
func (v *View) watchMembers(ctx context.Context) {
	r := &v.reach
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.asked:
		}
		list, _ := v.source.Members(ctx) // without a leader it is still a list
		r.mu.Lock()
		r.all, r.at = list.Members, time.Now()
		close(r.fresh)
		r.fresh = make(chan struct{})
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(reachRest):
		}
	}
}

// members returns how far the members are, nil if the answer does not come in time.
func (v *View) members(ctx context.Context) map[uint32]status.Member {
	r := &v.reach
	select {
	case r.asked <- struct{}{}:
	default:
	}
	r.mu.Lock()
	all, at, fresh := r.all, r.at, r.fresh
	r.mu.Unlock()
	if time.Since(at) < reachStale {
		return all
	}
	select {
	case <-fresh:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.all
	case <-time.After(reachWait):
	case <-ctx.Done():
	}
	return nil
}
