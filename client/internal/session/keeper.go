// Package session keeps one session with an ensemble after another, and leaves nothing behind in them: it
// makes nodes so that a lost answer makes no second one, removes the nodes that no call needs any more, and
// judges by its own clock until when a session certainly lives. It knows nothing of locks.
//
// A [Keeper] has the [Epoch] of the present session. What lives no longer than that session, as a hold does,
// is added to it ([Epoch.Add]).
package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Options say how a session is asked for and kept.
type Options struct {
	Timeout time.Duration
	Margin  time.Duration // 0: max(T/5, 1s)
	Safety  time.Duration // between two looks at what is waited for; 0: none; negative: by the timeout
	TLS     *tls.Config
	Auth    []zk.Auth
	Clock   Clock
	Log     *slog.Logger
	Dial    func(ctx context.Context, network, addr string) (net.Conn, error)

	Moved      func(from, to State) // is told the states in their order; it must not call the keeper
	LeftBehind func(nodes int)      // is told how many nodes are left behind
}

const (
	clockDrift = 0.005 // by which part the clocks of client and server may differ in speed
	minMargin  = time.Second
)

// marginFor is the safety margin for a session of timeout t.
func (o *Options) marginFor(t time.Duration) time.Duration {
	if o.Margin > 0 {
		return o.Margin
	}
	return max(t/5, minMargin)
}

// usable is how long after a confirmed heartbeat a session of timeout t counts as alive.
func (o *Options) usable(t time.Duration) time.Duration {
	return time.Duration(float64(t)*(1-clockDrift)) - o.marginFor(t)
}

// Heartbeat is the time between two heartbeats of a session of timeout t.
func Heartbeat(t time.Duration) time.Duration { return t / 5 }

// checkTimeout refuses a session timeout that leaves no room for two heartbeats
// before the deadline: leases would flicker.
func (o *Options) checkTimeout(granted time.Duration) error {
	need := 2 * Heartbeat(granted)
	if o.usable(granted) >= need {
		return nil
	}
	least := time.Duration(float64(o.marginFor(granted))/(1-clockDrift-2.0/5)).Round(100*time.Millisecond) +
		100*time.Millisecond
	by := ""
	if granted != o.Timeout {
		by = fmt.Sprintf(" (granted by the server instead of %v)", o.Timeout)
	}
	return fmt.Errorf("%w: a session timeout of %v%s is too short: leases are given up %v before it ends, "+
		"and two heartbeats need %v; ask for %v or more, or for a smaller margin",
		recipe.ErrInvalid, granted, by, o.marginFor(granted), need, least)
}

// Keeper keeps one session after another. Its fields without a lock are set before its first goroutine.
type Keeper struct {
	opt      Options
	address  string // of the servers, as given to New
	reaper   reaper
	crowd    crowd
	troubles troubles
	count    counters

	// Each context ends, with zk.ErrClosed, before the next: calls when Close begins, cleaning when Close
	// begins to end the session, and then life.
	calls, cleaning, life          context.Context
	endCalls, endCleaning, endLife context.CancelCauseFunc

	closeOne sync.Once
	loops    sync.WaitGroup // the heartbeat
	work     tasks          // detached work under way

	noContainers atomic.Bool     // the server refused one
	refused      func(why error) // is told that the identities are refused

	mu       sync.Mutex
	state    State
	conn     *zk.Conn // of the present session, or of the one being begun
	ep       *Epoch   // the present or the latest one; nil before the first session
	attached bool
	changed  chan struct{} // closed and replaced at each change of the above
}

// New returns a keeper that has yet to begin its first session. It sends nothing.
func New(servers string, o Options) (*Keeper, error) {
	addrs, _, err := zk.ParseServers(servers)
	if err != nil {
		return nil, err
	}
	k := &Keeper{opt: o, address: servers, changed: make(chan struct{}), state: Connecting}
	k.life, k.endLife = context.WithCancelCause(context.Background())
	k.cleaning, k.endCleaning = context.WithCancelCause(k.life)
	k.calls, k.endCalls = context.WithCancelCause(k.cleaning)
	k.troubles = troubles{k: k, servers: len(addrs), patience: troublePatience, latest: map[string]error{},
		said: map[string]string{}}
	k.reaper.slots = make(chan struct{}, reapParallel)
	return k, nil
}

// Begin begins the first session. refused is told when the servers refuse the identities.
func (k *Keeper) Begin(refused func(why error)) error {
	k.refused = refused
	if err := k.beginSession(); err != nil {
		k.endLife(zk.ErrClosed)
		return err
	}
	k.loops.Go(k.keepAlive)
	return nil
}

// Greet waits until the first session is usable. If it fails it closes the keeper, and the error says as well
// why there is no connection.
func (k *Keeper) Greet(ctx context.Context) error {
	err := k.untilUsable(ctx)
	if err == nil {
		return nil
	}
	trouble := k.Conn().Trouble()
	k.shutdown() // nothing can be left behind yet that is worth waiting for
	if cause := context.Cause(ctx); errors.Is(cause, zk.ErrAuthFailed) {
		return cause
	}
	if trouble != nil {
		err = fmt.Errorf("%w: %w", err, trouble)
	}
	return err
}

// untilUsable waits until the session is usable.
func (k *Keeper) untilUsable(ctx context.Context) error {
	// With a timeout too short for the margin no heartbeat makes the session usable: say so at once.
	err := k.untilSession(ctx, func(e *Epoch) (bool, error) {
		if e == nil {
			return false, nil
		}
		return true, k.opt.checkTimeout(e.Timeout())
	})
	if err == nil {
		_, err = k.Await(ctx)
	}
	return err
}

// Close ends the calls and what depends on the session. It removes abandoned nodes until ctx ends, or the
// session does by this client's clock. Then it closes the session, which removes the nodes that are left.
// It returns the error of ctx if ctx ended before all was clean; the keeper is closed in any case.
func (k *Keeper) Close(ctx context.Context) error {
	first, e := k.beginDraining()
	if !first {
		select {
		case <-k.life.Done():
			return nil
		case <-ctx.Done():
			return CtxErr(ctx)
		}
	}
	if e != nil {
		e.loseAll(Closed)
	}
	err := k.awaitReaper(ctx, e)
	k.shutdown()
	return err
}

// awaitReaper waits until the abandoned nodes are removed, or ctx ends. Without a server it does
// not wait beyond the end of the session, which removes the nodes.
func (k *Keeper) awaitReaper(ctx context.Context, e *Epoch) error {
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
func (k *Keeper) beginDraining() (first bool, e *Epoch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if first = !k.isDraining(); first {
		k.endCalls(zk.ErrClosed)
		k.broadcast()
	}
	return first, k.ep
}

// shutdown closes the session and waits for every goroutine of the client.
func (k *Keeper) shutdown() {
	k.closeOne.Do(func() {
		_, e := k.beginDraining()
		k.mu.Lock()
		k.endCleaning(zk.ErrClosed)
		conn := k.conn // the last one
		k.mu.Unlock()
		if e != nil {
			e.finish(Closed)
		}
		// A server that does not answer must not delay Close.
		ctx, cancel := context.WithTimeout(context.Background(), closePatience)
		defer cancel()
		_ = conn.Close(ctx)
		k.update(func() { k.state = Over })
		_ = k.work.wait(k.life)
		k.endLife(zk.ErrClosed)
		k.loops.Wait()
	})
}

// closePatience bounds the wait for the answer to closing the session.
const closePatience = 500 * time.Millisecond

// Detached runs f in a goroutine. No caller's context bounds f: it may run until the client begins
// to close the session, and the client waits for it then.
func (k *Keeper) Detached(f func(ctx context.Context)) {
	k.work.add(1)
	go func() {
		defer k.work.add(-1)
		f(k.cleaning)
	}()
}

// During returns a context for a call: it ends with ctx, and when Close begins.
func (k *Keeper) During(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(k.calls, func() { cancel(zk.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Calls ends when Close begins.
func (k *Keeper) Calls() context.Context { return k.calls }

// Cleaning ends when Close begins to end the session.
func (k *Keeper) Cleaning() context.Context { return k.cleaning }

// Done is closed when the keeper is closed.
func (k *Keeper) Done() <-chan struct{} { return k.life.Done() }

// Connections returns how many connections there were.
func (k *Keeper) Connections() uint64 { return k.count.wire.Connections.Load() }

// Heartbeats returns how many heartbeats were answered.
func (k *Keeper) Heartbeats() uint64 { return k.count.heartbeats.Load() }

// Recovered returns how many creations were found again whose answers were lost.
func (k *Keeper) Recovered() uint64 { return k.count.recovered.Load() }

// Log returns the logger for operators.
func (k *Keeper) Log() *slog.Logger { return k.opt.Log }

// Now reads the clocks.
func (k *Keeper) Now() Reading { return k.opt.Clock.Now() }

// Margin returns how long before the possible end of a session of timeout t it counts as over.
func (k *Keeper) Margin(t time.Duration) time.Duration { return k.opt.marginFor(t) }

// Servers returns the addresses given to New.
func (k *Keeper) Servers() []string {
	servers, _, _ := zk.ParseServers(k.address)
	return servers
}

// isDraining reports whether Close was called.
func (k *Keeper) isDraining() bool { return k.calls.Err() != nil }

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
		return CtxErr(ctx)
	}
}

// counters count what a keeper has done, as far as events do not tell.
type counters struct {
	wire                  zk.Counters
	heartbeats, recovered atomic.Uint64 // answered; creates whose lost reply was made up for
}
