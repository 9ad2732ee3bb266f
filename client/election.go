package client

import (
	"context"
	"errors"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// Election chooses a leader among the candidates on a path. The candidate that campaigned first leads until
// it resigns or its session ends. Each candidate has a value that every client can see, such as its address.
//
// The leader of an election has nothing to do with the leader of the servers.
type Election struct {
	c    *Client
	path string
	cfg  *options
}

// Election returns the election on path. It sends no request; only the methods of the Election do.
func (c *Client) Election(path string, opts ...Option) *Election {
	return &Election{c: c, path: path, cfg: c.locks.with(opts)}
}

func electionRule(l Layout) turns.Rule {
	if l == LayoutLatch {
		return turns.Rule{Layout: LayoutCurator, Kind: recipe.RoleLatch}
	}
	return turns.Rule{Layout: l, Kind: recipe.RoleLock}
}

// Campaign waits until this candidate leads or ctx ends. The lease is the leadership: Unlock ends it, and the
// context of the lease ends when the leadership is lost.
//
// If ctx names a [Task], the node's data are the value, a zero byte and an owner record, so that
// [Inspector.WaitGraph] sees the task. With [LayoutLatch] and [LayoutKazoo] the data are always the value
// alone.
func (el *Election) Campaign(ctx context.Context, value []byte, opts ...Option) (*Lease, error) {
	cfg := el.cfg.with(opts)
	ask, err := el.c.ask(el.path, cfg, fence.Exclusive, false)
	if err != nil {
		return nil, err
	}
	ask.Value = append([]byte{}, value...)
	l, err := el.c.take.InQueue(ctx, ask, electionRule(cfg.Layout))
	return (*Lease)(l), err
}

// Do campaigns and runs f while this candidate leads; see [Mutex.Do].
func (el *Election) Do(ctx context.Context, value []byte, f func(context.Context, *Lease) error,
	opts ...Option) error {
	l, err := el.Campaign(ctx, value, opts...)
	return l.do(ctx, err, f)
}

// Leader describes the leader of an election.
type Leader struct {
	Node    string // path relative to the election's path; empty if there is no leader
	Value   []byte
	Token   fence.Token
	Session int64
	Since   time.Time // when the leader entered the election
	Err     error     // set by Observe: why the leader cannot be seen
}

// None reports whether there is no leader.
func (l Leader) None() bool { return l.Node == "" && l.Err == nil }

// Leader returns the present leader.
func (el *Election) Leader(ctx context.Context) (Leader, error) {
	var s sight
	err := el.c.steadily(ctx, el.path, func(e *session.Epoch) error {
		err := e.Conn().Sync(ctx, el.path)
		if err == nil {
			s, err = el.look(ctx, e)
		}
		return err
	})
	return s.leader, err
}

// sight is what look() has found: the leader, and the watch that tells of a change.
type sight struct {
	leader Leader
	mzxid  int64
	w      *zk.Watch // fires when the leader may have changed
}

// look() finds the first candidate and watches its node. If there is no candidate, look() watches the
// directory. If there is no directory, look() watches for its creation.
func (el *Election) look(ctx context.Context, e *session.Epoch) (sight, error) {
	for watch := false; ; {
		names, w, err := e.List(ctx, el.path, watch)
		if errors.Is(err, zk.ErrNoNode) {
			st, w, err := e.Conn().ExistsW(ctx, el.path)
			if err != nil || st == nil {
				return sight{w: w}, err
			}
			continue
		}
		var queue []recipe.Contender
		if err == nil {
			queue, _, err = turns.QueueOf(electionRule(el.cfg.Layout).Layout, names, false)
		}
		if err != nil {
			return sight{}, err
		}
		if len(queue) == 0 {
			if watch {
				return sight{w: w}, nil
			}
			// There is no candidate, so watch the directory. With candidates this watch would fire for each of them.
			watch = true
			continue
		}
		first, w, err := e.Conn().GetW(ctx, recipe.Join(el.path, queue[0].Name))
		if errors.Is(err, zk.ErrNoNode) {
			watch = false
			continue
		}
		st := first.Stat
		value, _ := recipe.ValueOf(first.Data)
		return sight{Leader{
			Node: queue[0].Name, Value: value, Token: fence.Token(st.Czxid),
			Session: st.EphemeralOwner, Since: time.UnixMilli(st.Ctime),
		}, st.Mzxid, w}, err
	}
}

// Observe sends the leader, now and after each change, until ctx ends or the client is closed; then it closes
// the channel. A slow reader misses values, but never gets an older value after a newer one. If [Leader.None]
// is true, there is no leader. If the server refuses to show the leader, Observe sends the error once, as
// [Leader.Err], and continues.
func (el *Election) Observe(ctx context.Context) <-chan Leader {
	out := make(chan Leader, 1)
	el.c.keeper.Detached(func(context.Context) {
		ctx, end := el.c.keeper.During(ctx)
		defer end()
		defer close(out)
		el.observe(ctx, out)
	})
	return out
}

func (el *Election) observe(ctx context.Context, out chan Leader) {
	var last *sight // the leader that was sent last
	refused := ""   // the last refusal that was sent
	tell := func(l Leader) {
		select {
		case <-out: // the reader was slow: replace the value that it did not take
		default:
		}
		out <- l
	}
	var synced *session.Epoch
	for n := 1; ; n++ {
		e, err := el.c.keeper.Await(ctx)
		if err != nil {
			return
		}
		if e != synced {
			// The server of a new session may lag behind the server of the last session, so sync first.
			if err = e.Conn().Sync(ctx, el.path); err == nil {
				synced = e
			}
		}
		var s sight
		if err == nil {
			s, err = el.look(ctx, e)
		}
		if err != nil {
			if text := err.Error(); zk.IsRefusal(err) && !errors.Is(err, zk.ErrThrottled) && text != refused {
				refused, last = text, nil
				tell(Leader{Err: hold.ErrorAt(el.path, hold.PublicErr(ctx, err))})
			}
			wait := session.Backoff(n, 10*time.Millisecond, time.Second)
			if ctx.Err() != nil || session.Pause(ctx, wait) != nil {
				return
			}
			continue
		}
		n = 0
		// A leader that differs from the last one is newer. Within a session the server never goes back to an older
		// state, and each new session begins with a sync.
		if last == nil || s.leader.Token != last.leader.Token || s.mzxid != last.mzxid {
			last, refused = &s, ""
			tell(s.leader)
		}
		if err := e.RestAwhile(ctx, s.w.Fired()); err != nil && !errors.Is(err, ErrSessionExpired) {
			return
		}
	}
}
