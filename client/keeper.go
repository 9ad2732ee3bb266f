package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// session says how a session is asked for and kept.
type session struct {
	timeout time.Duration
	margin  time.Duration // 0: max(T/5, 1s)
	safety  time.Duration // between two looks at what is waited for; 0: none; negative: by the session timeout
	tls     *tls.Config
	auth    []zk.Auth
	clock   clocks
	log     *slog.Logger
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
}

const (
	clockDrift = 0.005 // by which part the clocks of client and server may differ in speed
	minMargin  = time.Second
)

// marginFor is the safety margin for a session of timeout t.
func (o *session) marginFor(t time.Duration) time.Duration {
	if o.margin > 0 {
		return o.margin
	}
	return max(t/5, minMargin)
}

// usable is how long after a confirmed heartbeat a session of timeout t counts as alive.
func (o *session) usable(t time.Duration) time.Duration {
	return time.Duration(float64(t)*(1-clockDrift)) - o.marginFor(t)
}

// heartbeat is the time between two heartbeats of a session of timeout t.
func heartbeat(t time.Duration) time.Duration { return t / 5 }

// checkTimeout refuses a session timeout that leaves no room for two heartbeats
// before the deadline: leases would flicker.
func (o *session) checkTimeout(granted time.Duration) error {
	need := 2 * heartbeat(granted)
	if o.usable(granted) >= need {
		return nil
	}
	least := time.Duration(float64(o.marginFor(granted))/(1-clockDrift-2.0/5)).Round(100*time.Millisecond) +
		100*time.Millisecond
	by := ""
	if granted != o.timeout {
		by = fmt.Sprintf(" (granted by the server instead of %v)", o.timeout)
	}
	return fmt.Errorf("%w: a session timeout of %v%s is too short: leases are given up %v before it ends, "+
		"and two heartbeats need %v; ask for %v or more, or for a smaller margin",
		ErrInvalid, granted, by, o.marginFor(granted), need, least)
}

// keeper keeps one session with an ensemble after another, and leaves nothing behind in them. It knows
// nothing of locks. Its fields without a lock are set before its first goroutine.
type keeper struct {
	opt      session
	address  string               // of the servers, as given to Dial
	moved    func(from, to State) // is told the states in their order; k.mu is held
	behind   func(nodes int)      // is told how many nodes are left behind
	reaper   reaper
	crowd    crowd
	troubles troubles
	count    counters

	// Each context ends, with ErrClosed, before the next: calls when Close begins, cleaning when Close
	// begins to end the session, and then life.
	calls, cleaning, life          context.Context
	endCalls, endCleaning, endLife context.CancelCauseFunc

	closeOne sync.Once
	loops    sync.WaitGroup // the heartbeat
	work     tasks          // detached work under way

	noContainers atomic.Bool             // the server refused one
	refused      context.CancelCauseFunc // ends Dial when the identities are refused

	mu       sync.Mutex
	state    State
	conn     *zk.Conn // of the present session, or of the one being begun
	ep       *epoch   // nil before the first session
	attached bool
	changed  chan struct{} // closed and replaced at each change of the above
}

// newKeeper returns a keeper that has yet to begin its first session.
func newKeeper(servers string, o session) (*keeper, error) {
	addrs, _, err := zk.ParseServers(servers)
	if err != nil {
		return nil, err
	}
	k := &keeper{opt: o, address: servers, changed: make(chan struct{}), state: StateConnecting}
	k.life, k.endLife = context.WithCancelCause(context.Background())
	k.cleaning, k.endCleaning = context.WithCancelCause(k.life)
	k.calls, k.endCalls = context.WithCancelCause(k.cleaning)
	k.troubles = troubles{k: k, servers: len(addrs), patience: troublePatience, latest: map[string]error{},
		said: map[string]string{}}
	k.reaper.slots = make(chan struct{}, reapParallel)
	return k, nil
}

// greet waits until the session is usable.
func (k *keeper) greet(ctx context.Context) error {
	// With a timeout too short for the margin no heartbeat makes the session usable: Dial must say so
	// at once.
	err := k.untilSession(ctx, func(e *epoch) (bool, error) {
		if e == nil {
			return false, nil
		}
		return true, k.opt.checkTimeout(e.sessionTimeout())
	})
	if err == nil {
		_, err = k.epoch(ctx)
	}
	return err
}

// awaitReaper waits until the abandoned nodes are removed, or ctx ends. Without a server it does
// not wait beyond the end of the session, which removes the nodes.
func (k *keeper) awaitReaper(ctx context.Context, e *epoch) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		err := k.reaper.left.wait(bounded)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		k.mu.Lock()
		gone := e != nil && !k.attached && e.outlived()
		k.mu.Unlock()
		if gone {
			return nil
		}
	}
}

// beginDraining ends all attempts; first reports whether this call did it.
func (k *keeper) beginDraining() (first bool, e *epoch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if first = !k.isDraining(); first {
		k.endCalls(ErrClosed)
		k.broadcast()
	}
	return first, k.ep
}

// shutdown closes the session and waits for every goroutine of the client.
func (k *keeper) shutdown() {
	k.closeOne.Do(func() {
		_, e := k.beginDraining()
		k.mu.Lock()
		k.endCleaning(ErrClosed)
		conn := k.conn // the last one
		k.mu.Unlock()
		if e != nil {
			e.finish(overClosed)
		}
		// A server that does not answer must not delay Close.
		ctx, cancel := context.WithTimeout(context.Background(), closePatience)
		defer cancel()
		_ = conn.Close(ctx)
		k.update(func() { k.state = StateClosed })
		_ = k.work.wait(k.life)
		k.endLife(ErrClosed)
		k.loops.Wait()
	})
}

// closePatience bounds the wait for the answer to closing the session.
const closePatience = 500 * time.Millisecond

// detached runs f in a goroutine. No caller's context bounds f: it may run until the client begins
// to close the session, and the client waits for it then.
func (k *keeper) detached(f func(ctx context.Context)) {
	k.work.add(1)
	go func() {
		defer k.work.add(-1)
		f(k.cleaning)
	}()
}

// during returns a context for a call: it ends with ctx, and when Close begins.
func (k *keeper) during(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(k.calls, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// isDraining reports whether Close was called.
func (k *keeper) isDraining() bool { return k.calls.Err() != nil }

// tasks counts work under way. Unlike a sync.WaitGroup it may grow while a goroutine waits.
type tasks struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed at zero tasks; nil without a waiting goroutine
}

// add changes the number of tasks by n and returns the new number.
func (t *tasks) add(n int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n += n
	if t.n == 0 && t.none != nil {
		close(t.none)
		t.none = nil
	}
	return t.n
}

// wait waits until there is no task, or ctx ends.
func (t *tasks) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.n > 0 && t.none == nil {
		t.none = make(chan struct{})
	}
	none, idle := t.none, t.n == 0
	t.mu.Unlock()
	if idle {
		return nil
	}
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctxErr(ctx)
	}
}

// counters count what a keeper has done, as far as events do not tell.
type counters struct {
	wire                  zk.Counters
	heartbeats, recovered atomic.Uint64 // answered; creates whose lost reply was made up for
}
