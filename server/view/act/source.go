package act

import (
	"context"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/look"
)

// Source is the server as this part of the view sees it.
type Source interface {
	look.Source
	// Status describes this server.
	Status(report.Need) *report.Status
	// Do carries out a request through the log and returns its outcome.
	Do(context.Context, state.Request) (state.Outcome, error)
	// HandOver gives leadership to another server.
	HandOver(context.Context) error
	// TakeSnapshot writes a snapshot to disk.
	TakeSnapshot() error
}
