package leading

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/signal"
)

// Leader runs the terms of this server. A zero Leader leads in no term.
type Leader struct {
	// Stored records how far the other servers' logs agree with this server's log, while this server leads.
	Stored followers.Stored

	o    Options
	term atomic.Pointer[Term] // the term in which this server leads; nil: it does not lead
	won  atomic.Int64         // how many terms have begun
}

// Use sets what Run needs.
func (l *Leader) Use(o Options) { l.o = o }

// Term returns the term in which this server leads. It returns nil if this server does not lead.
func (l *Leader) Term() *Term { return l.term.Load() }

// Won returns how many terms have begun.
func (l *Leader) Won() int64 { return l.won.Load() }

// Run runs one term after the other, never two at once. If leadership is lost and regained, a new term
// begins.
func (l *Leader) Run(ctx context.Context) {
	for {
		var leads context.Context
		select {
		case <-ctx.Done():
			return
		case leads = <-l.o.Leadership.Won:
		}
		for again := true; again; again = signal.Pause(leads, 10*time.Millisecond) {
			err := l.runTerm(leads)
			if leads.Err() == nil {
				// Raft still says that this server leads: a proposal failed, or a hand-over was tried. Begin
				// again with the barrier.
				l.o.Log.Debug("this server begins its term as leader again", "err", err)
			}
		}
	}
}

// runTerm leads until ctx ends or a proposal fails.
func (l *Leader) runTerm(ctx context.Context) error {
	o := &l.o
	// A server that wins an election may not have applied all entries yet. After the barrier it has applied
	// every request ever acknowledged.
	err := consensus.Await(ctx, o.Raft.Barrier(0))
	o.Relief.Began(ctx, err, 3*o.Heartbeat)
	if err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	number := o.Raft.CurrentTerm()
	if !o.Raft.Leads() || o.Raft.CurrentTerm() != number {
		return ErrNotLeading
	}
	if err := o.found(ctx); err != nil {
		return fmt.Errorf("found: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &Term{o: o, number: number, ctx: ctx, began: time.Now(), deadlines: o.State.Lead(),
		work: signal.New(), members: signal.New(), working: make(baton, 1)}
	t.reader = o.State.Stream.Lead()
	t.news = followers.NewNews(followers.Leader{ID: o.ID, Term: number, Leads: o.Raft.Leads, Raft: o.Raft,
		State: o.State, Stored: &l.Stored, Go: o.Go, Log: o.Log})
	defer t.news.Close()
	l.term.Store(t) // the term is complete, so requests to change members may find it
	t.layout.begin(t)
	l.won.Add(1)
	o.Serving.Contact()
	o.Log.Info("this server leads", "term", o.Raft.CurrentTerm(), "zxid", fmt.Sprintf("0x%x", o.State.Zxid()))
	defer func() {
		l.term.CompareAndSwap(t, nil)
		o.State.Leave(t.deadlines)
		t.links.Close()
		o.Log.Info("this server is no longer the leader")
	}()
	duties := make(chan struct{})
	go func() {
		defer close(duties)
		t.duties()
	}()
	defer func() { cancel(); <-duties }()
	if bl, wanted := o.Opening(); wanted {
		t.OpenStream(bl)
	}
	done := make(chan error, 1)
	go func() { done <- t.batch() }()
	select {
	case err = <-done:
	case <-ctx.Done():
	}
	o.State.Stream.Leave() // before the rest of the term ends, so that a link to the next leader need not wait
	if ctx.Err() == nil {
		return err
	}
	// The batcher may be waiting for raft, which may never answer, so this goroutine does not wait for the
	// batcher. It takes the baton instead: without the baton the batcher does nothing if raft answers later.
	t.working.take()
	defer t.working.give()
	return ctx.Err()
}
