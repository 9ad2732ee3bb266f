package server

import (
	"context"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/entrance"
)

// unformedGrace is how long a server that starts waits for the others, before it lets in clients that ask for
// read-only sessions.
const unformedGrace = 2 * time.Second

// unformed stands for the state of a server that has not joined its cluster yet: the empty tree with which
// every cluster begins. It has only the methods that read-only sessions need.
type unformed struct {
	entrance.Replica // nil: no other method is called
	state            *state.State
}

// View implements entrance.Replica.
func (u unformed) View(f func(*state.State)) { f(u.state) }

// Zxid implements entrance.Replica.
func (unformed) Zxid() int64 { return 0 }

// readMeanwhile lets read-only sessions read an empty tree while the server waits for the others of its
// cluster. end() ends these sessions.
func (i *Instance) readMeanwhile() (end func()) {
	if !i.o.ReadOnlyMode || len(i.o.Peers) < 2 {
		return func() {}
	}
	i.Clients.UseMeanwhile(unformed{state: state.New("")})
	ctx, cancel := context.WithCancel(i.ctx)
	ended := make(chan struct{})
	i.wg.Go(func() {
		defer close(ended)
		select {
		case <-time.After(unformedGrace):
			i.Clients.ReadOnly(true)
			<-ctx.Done()
			i.Clients.ReadOnly(false)
		case <-ctx.Done():
		}
	})
	return func() { cancel(); <-ended }
}
