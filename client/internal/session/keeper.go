// Package session keeps a session with an ensemble, and opens the next session when it ends. It leaves no
// abandoned nodes behind in a session. It creates nodes so that a lost answer does not lead to a second node,
// removes nodes that no call needs any longer, and decides by its own clock how long a session certainly
// lives. It has no code for locks.
//
// A [Keeper] has the [Epoch] of the present session. An object that must end with the session, such as a
// hold, is added to the session's epoch ([Epoch.Add]).
package session

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// Options configure sessions.
type Options struct {
	Timeout time.Duration
	Margin  time.Duration // 0: max(T/5, 1 s) for a session timeout T
	// how often a waiter looks at its node without an event; 0: never; negative: the session timeout decides
	Safety time.Duration
	TLS    *tls.Config
	Auth   []zk.Auth
	Clock  Clock
	Log    *slog.Logger
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)

	Moved      func(from, to State) // called for each change of state, in order; must not call the keeper
	LeftBehind func(nodes int)      // called with the number of nodes left behind
}

// Keeper keeps one session after another. Fields that no lock guards keep their values once the first
// goroutine of the keeper has started.
type Keeper struct {
	opt      Options
	address  string // addresses of the servers, as given to New
	reaper   reaper
	crowd    crowd
	troubles troubles
	count    counters

	// Close ends these contexts with zk.ErrClosed: `calls` at once, `cleaning` before it ends the session,
	// and `life` after that.
	calls, cleaning, life          context.Context
	endCalls, endCleaning, endLife context.CancelCauseFunc

	closeOne sync.Once
	loops    sync.WaitGroup // counts the goroutine of the heartbeat
	work     tasks          // detached work that is running

	noContainers atomic.Bool     // the server has refused a container
	refused      func(why error) // called when the servers refuse the identities

	mu       sync.Mutex
	state    State
	conn     *zk.Conn // connection of the present session, or of the next one
	ep       *Epoch   // the present or the last epoch; nil before the first session
	attached bool
	changed  chan struct{} // closed and replaced at each change of the fields above
}

// New returns a keeper without a session. It sends nothing; see Begin.
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

// Detached runs f in a goroutine. No caller's context bounds f: the context of f ends when the client begins
// to close the session. The keeper is closed only after f has returned.
func (k *Keeper) Detached(f func(ctx context.Context)) {
	k.work.add(1)
	go func() {
		defer k.work.add(-1)
		f(k.cleaning)
	}()
}

// During returns a context for a call. It ends when ctx ends or Close begins.
func (k *Keeper) During(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(k.calls, func() { cancel(zk.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Calls returns the context that ends when Close begins.
func (k *Keeper) Calls() context.Context { return k.calls }

// Cleaning returns the context that ends when Close begins to end the session.
func (k *Keeper) Cleaning() context.Context { return k.cleaning }

// Done returns a channel that closes when the keeper is closed.
func (k *Keeper) Done() <-chan struct{} { return k.life.Done() }

// Connections returns the number of connections so far.
func (k *Keeper) Connections() uint64 { return k.count.wire.Connections.Load() }

// Heartbeats returns the number of answered heartbeats.
func (k *Keeper) Heartbeats() uint64 { return k.count.heartbeats.Load() }

// Recovered returns how many times nodes were found again after the reply to their creation was lost.
func (k *Keeper) Recovered() uint64 { return k.count.recovered.Load() }

// Log returns the logger for operators.
func (k *Keeper) Log() *slog.Logger { return k.opt.Log }

// Now reads the clocks.
func (k *Keeper) Now() Reading { return k.opt.Clock.Now() }

// Servers returns the addresses given to New.
func (k *Keeper) Servers() []string {
	servers, _, _ := zk.ParseServers(k.address)
	return servers
}

// isDraining reports whether Close was called.
func (k *Keeper) isDraining() bool { return k.calls.Err() != nil }

// counters count a keeper's actions that no event reports.
type counters struct {
	wire zk.Counters
	// the numbers of answered heartbeats, and of nodes found again after the reply to their creation was lost
	heartbeats, recovered atomic.Uint64
}

// State is the state of a keeper's session.
type State uint8

const (
	// Connecting: there is no session yet.
	Connecting State = iota
	// Ready: the server answers, and the session certainly lives.
	Ready
	// Suspended: there is no usable connection, but the session may live; until its deadline it certainly
	// lives.
	Suspended
	// Lost: the session is over, or was not confirmed in time.
	Lost
	// Over: Close was called.
	Over
)

var stateNames = [...]string{"connecting", "ready", "suspended", "lost", "closed"}

// String returns the state in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// broadcast wakes the goroutines that wait for a change of the session. k.mu is held.
func (k *Keeper) broadcast() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// update() changes the session and its state in one step, so that no caller sees one change without the
// other. It reports the states in order.
func (k *Keeper) update(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.state
	change()
	k.broadcast()
	k.state = k.stateNow()
	if k.state != old && k.opt.Moved != nil {
		k.opt.Moved(old, k.state)
	}
}

// stateNow derives the state from the other fields. k.mu is held.
func (k *Keeper) stateNow() State {
	switch e := k.ep; {
	case k.state == Over:
		return Over
	case e == nil, k.state == Connecting && !e.alive():
		return Connecting
	case !e.alive():
		return Lost
	case !k.attached:
		return Suspended
	}
	return Ready
}

// State returns the state of the session.
func (k *Keeper) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Present returns the present or the last session, or nil before the first one. It also returns the
// connection of this session or of the next one.
func (k *Keeper) Present() (*Epoch, *zk.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ep, k.conn
}
