package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients"
)

// unformedGrace is how long a server waits for the others before it lets clients read that ask
// for read-only sessions.
const unformedGrace = 2 * time.Second

// unformed is the state of a server that has not joined its cluster yet: the empty tree that
// every cluster begins with. Clients only read it.
type unformed struct {
	mu    sync.Mutex
	state *state.State
}

var _ clients.Replica = (*unformed)(nil)

var errUnformed = errors.New("this server has not joined its cluster")

// Propose implements clients.Replica.
func (*unformed) Propose(state.Request, state.Waiter) error { return errUnformed }

// View implements clients.Replica.
func (u *unformed) View(f func(*state.State)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f(u.state)
}

// WaitZxid implements clients.Replica: this state never applies anything.
func (*unformed) WaitZxid(_ context.Context, zxid int64) bool { return zxid <= 0 }

// Zxid implements clients.Replica.
func (*unformed) Zxid() int64 { return 0 }

// PingOK implements clients.Replica.
func (*unformed) PingOK(time.Duration) bool { return true }

// readMeanwhile lets clients that ask for read-only sessions read an empty tree while this server
// waits for the others. It returns the function that ends this.
func (i *Instance) readMeanwhile() (end func()) {
	if !i.o.ReadOnlyMode || len(i.o.Peers) < 2 {
		return func() {}
	}
	i.Clients.UseMeanwhile(&unformed{state: state.New("")})
	ctx, cancel := context.WithCancel(i.ctx)
	ended := make(chan struct{})
	i.wg.Go(func() {
		defer close(ended)
		select {
		case <-time.After(unformedGrace):
			i.alone.Store(true)
			i.Clients.ReadOnly(true)
			<-ctx.Done()
			i.alone.Store(false)
			i.Clients.ReadOnly(false)
		case <-ctx.Done():
		}
	})
	return func() { cancel(); <-ended }
}
