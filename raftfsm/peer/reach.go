package peer

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// reach records which servers this server cannot reach, and logs each outage: a line when it begins, a line
// once it is long, and a line when it ends.
type reach struct {
	log *slog.Logger

	mu   sync.Mutex
	lost map[uint32]*outage
}

// outage is a period in which a server cannot be reached.
type outage struct {
	since time.Time
	err   error         // the error of the last call
	long  bool          // whether the log already says that this outage is long
	over  chan struct{} // closed when the outage ends
}

// longOutage is longer than a restart takes. A shorter outage needs no warning, because operators restart
// servers.
const longOutage = 10 * time.Second

// note() records the outcome of a call to a server.
func (r *reach) note(id uint32, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.lost[id]
	if o != nil {
		o.err = err
	}
	switch {
	case err == nil && o != nil:
		delete(r.lost, id)
		close(o.over)
		r.log.Info("a server can be reached "+
			"again", "peer", id, "after", time.Since(o.since).Round(time.Millisecond))
	case err == nil:
	case o == nil:
		r.lost[id] = &outage{since: time.Now(), err: err, over: make(chan struct{})}
		r.log.Info("a server cannot be reached", "peer", id, "err", err)
	case !o.long && time.Since(o.since) > longOutage:
		o.long = true
		r.log.Warn("a server still cannot be "+
			"reached", "peer", id, "for", time.Since(o.since).Round(time.Second),
			"err", err)
	}
}

// called() records a call from a server. Such a call shows that this server can reach the caller, too. There
// is one exception: a server that waits with an empty directory asks questions, but refuses the calls of
// others. So the outage of a server that refused the last call does not end when that server asks a question.
func (r *reach) called(id uint32, p Purpose) {
	r.mu.Lock()
	o := r.lost[id]
	refused := (*Refusal)(nil)
	refuses := o != nil && errors.As(o.err, &refused) && refused.Reason != Starting
	r.mu.Unlock()
	if p != Ask || !refuses {
		r.note(id, nil)
	}
}

// again() returns a channel that closes when a server can be reached again. again() returns nil if the server
// can be reached now.
func (r *reach) again(id uint32) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.lost[id]; o != nil {
		return o.over
	}
	return nil
}

// NotFormed is the refusal of a server whose directory is empty: it has no cluster yet, or has lost its
// directory.
const NotFormed = "the cluster is not formed yet"

// Starting is the refusal of a server whose raft does not run yet, although its directory has a cluster.
const Starting = "the server is starting"

// Refusal returns the error of a running server that refuses to admit this server, or nil if there is no such
// server. While such a server runs, the cluster has not lost its majority for good. A server that refuses
// with NotFormed does not count, because it may have lost its data.
func (p *Port) Refusal() error {
	p.reach.mu.Lock()
	defer p.reach.mu.Unlock()
	for _, o := range p.reach.lost {
		if refused := (*Refusal)(nil); errors.As(o.err, &refused) && refused.Reason != NotFormed {
			return o.err
		}
	}
	return nil
}

// awaitReach delays the failure of a message until its server is reached again. After each failure raft waits
// twice as long before it tries again, up to ten seconds. Without the delay, a server that comes back after a
// minute could wait for nearly ten seconds more. With the delay, each outage of a server counts as one
// failure.
func (t *transport) awaitReach(id raft.ServerID, target raft.ServerAddress, term uint64) {
	again := t.port.reach.again(ParseID(id))
	if again == nil {
		return
	}
	tick := time.NewTicker(reachLook)
	defer tick.Stop()
	for t.host.Replicates(term, ParseID(id), string(target)) {
		select {
		case <-again:
			return
		case <-t.port.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// reachLook is how often awaitReach checks whether the term still lasts and the server is still a member.
const reachLook = 100 * time.Millisecond
