package view

import (
	"context"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
)

// reach caches the progress of the members. One request asks the other servers, and all requests use its
// answer. So no request waits long for a server that does not answer.
type reach struct {
	mu    sync.Mutex
	all   map[uint32]status.Member
	at    time.Time     // when all was replaced
	asked chan struct{} // closed when all is replaced; nil: the servers are not being asked
}

const (
	reachRest  = time.Second            // time between two questions
	reachStale = 4 * time.Second        // the server does not use an older answer
	reachWait  = 500 * time.Millisecond // how long the answer to a question may take
)

// members returns the progress of the members. It returns nil if the answer does not come in time.
func (v *View) members(ctx context.Context) map[uint32]status.Member {
	r := &v.reach
	r.mu.Lock()
	if r.asked == nil && time.Since(r.at) >= reachRest && v.ctx.Err() == nil {
		r.asked = make(chan struct{})
		v.wg.Go(v.askMembers)
	}
	all, at, asked := r.all, r.at, r.asked
	r.mu.Unlock()
	if time.Since(at) < reachStale {
		return all
	}
	select {
	case <-asked:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.all
	case <-time.After(reachWait):
	case <-ctx.Done():
	}
	return nil
}

func (v *View) askMembers() {
	r := &v.reach
	list, _ := v.source.Members(v.ctx) // without a leader there is an error, but also a list
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.asked)
	r.all, r.at, r.asked = list.Members, time.Now(), nil
}
