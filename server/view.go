package server

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/view"
)

// openView adds the lock view to the admin pages. Call it before the admin port opens; a server
// without admin and metrics ports has no view.
func (i *Instance) openView(pages map[string]http.Handler) {
	if i.http == nil && i.metrics == nil {
		return
	}
	i.view = view.New(view.Options{
		Source: viewSource{i, i.Clients, i.Clients.Observed()}, Authorize: i.authorize(), Now: i.o.Now,
		Log: i.o.Logger, ShowAll: i.o.SkipACL,
	})
	maps.Copy(pages, i.view.Pages())
}

// viewSource gives the lock view access to this server.
type viewSource struct {
	*Instance
	*clients.Server
	*observe.Clients
}

var _ view.Source = viewSource{}

// View implements view.Source.
func (s viewSource) View(f func(*state.State)) bool {
	node := s.node.Load()
	if node == nil {
		return false
	}
	node.View(f)
	return true
}

// The type done is a channel that receives an outcome.
type done chan state.Outcome

func (d done) Done(o *state.Outcome, _ *state.State) {
	kept := *o
	kept.Reply = bytes.Clone(o.Reply) // o.Reply is valid only during this call
	d <- kept
}

// Do implements view.Source.
func (s viewSource) Do(ctx context.Context, r state.Request) (state.Outcome, error) {
	node := s.node.Load()
	if node == nil {
		return state.Outcome{}, errNotJoined
	}
	d := make(done, 1)
	failed := make(chan error, 1)
	go func() { // Propose may block, and the caller must not wait longer than ctx
		if err := node.Propose(r, d); err != nil {
			failed <- err
		}
	}()
	select {
	case err := <-failed:
		return state.Outcome{}, err
	case out := <-d:
		if out.Unknown {
			return out, errors.New("it is not known whether the change took effect; look again")
		}
		return out, nil
	case <-ctx.Done():
		return state.Outcome{}, errors.New("no answer from the cluster in time; the change may still take effect")
	}
}

// HandOver implements view.Source.
func (s viewSource) HandOver(ctx context.Context) error {
	node := s.node.Load()
	if node == nil {
		return errNotJoined
	}
	return node.HandOver(ctx)
}

// TakeSnapshot implements view.Source.
func (s viewSource) TakeSnapshot() error {
	node := s.node.Load()
	if node == nil {
		return errNotJoined
	}
	return node.Snapshot()
}
