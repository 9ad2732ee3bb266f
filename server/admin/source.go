package admin

import (
	"context"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/report"
)

// Source is the server as this package sees it. Its methods may be called by
// several goroutines at once.
type Source interface {
	// Status returns a fresh value that the caller owns.
	Status(report.Need) *report.Status
	// ResetStats zeroes the counts that the word srst zeroes: packets, latencies and sizes.
	ResetStats()
	// ResetConns zeroes the statistics of every client connection.
	ResetConns()
	// ChangeMember makes one change of the ensemble's members, and returns when it is done or
	// refused.
	ChangeMember(context.Context, change.Change) error
	// Members lists the members and the progress of each. It asks other servers, so it may take some seconds.
	// The list is valid even with an error: then this server has made it without a leader.
	Members(context.Context) (*status.Members, error)
	// Probe finds out whether the server at `addr` could be the member `id`, and returns its progress.
	Probe(ctx context.Context, id uint32, addr string) (*status.Found, error)
}
