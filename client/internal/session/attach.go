package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// State is the state of a keeper's session.
type State uint8

const (
	// Connecting: there is no session yet.
	Connecting State = iota
	// Ready: the server answers, and the session certainly lives.
	Ready
	// Suspended: there is no usable connection, but the session may live, certainly until its deadline.
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

// beginSession opens the next session; when it exists, attach runs.
func (k *Keeper) beginSession() error {
	o := zk.Options{
		Timeout: k.opt.Timeout, TLS: k.opt.TLS, Auth: k.opt.Auth, Dial: k.opt.Dial,
		Counters: &k.count.wire, Logger: k.opt.Log, OnTrouble: k.troubles.add,
	}
	e := newEpoch(k)
	o.OnState = func(s zk.State) {
		switch s {
		case zk.Connected:
			k.troubles.over()
			k.attach(e)
		case zk.Disconnected:
			k.detach()
		case zk.Expired:
			k.expired(e)
		}
	}
	k.mu.Lock() // what OnState does waits until the connection is known
	defer k.mu.Unlock()
	if k.cleaning.Err() != nil {
		return zk.ErrClosed
	}
	conn, err := zk.Open(k.address, o)
	if err == nil {
		e.conn, k.conn = conn, conn
	}
	return err
}

// Conn returns the connection of the present session, or of the one being begun.
func (k *Keeper) Conn() *zk.Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.conn
}

// attach records a connection that carries the session.
func (k *Keeper) attach(e *Epoch) {
	k.mu.Lock() // beginSession notes the connection under it
	s := e.conn.Session()
	k.mu.Unlock()
	e.begin(s.ID, s.Timeout)
	k.update(func() {
		if k.cleaning.Err() == nil {
			k.ep, k.attached = e, true
		}
	})
	k.opt.Log.Debug("session attached", "session", recipe.Session(s.ID), "timeout", s.Timeout)
}

// detach records that there is no usable connection.
func (k *Keeper) detach() {
	k.update(func() { k.attached = false })
}

// expired ends the epoch of a session that is over, and begins the next session.
func (k *Keeper) expired(e *Epoch) {
	err := k.Conn().Err()
	k.opt.Log.Info("session over", "session", recipe.Session(e.sid), "err", err)
	e.finish(Expired)
	k.detach()
	if errors.Is(err, zk.ErrAuthFailed) {
		k.refused(err)
		// The identities may be changed back on the server: try again.
		k.Detached(func(ctx context.Context) {
			if Pause(ctx, time.Second) == nil {
				_ = k.beginSession()
			}
		})
		return
	}
	_ = k.beginSession()
}

// broadcast wakes the goroutines that wait for a change of the session. k.mu is held.
func (k *Keeper) broadcast() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// update makes a change of the session and brings the state up to date in the same step, so that
// no caller sees one without the other and the states are told in their order.
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

// stateNow derives the state from what is known of the session. k.mu is held.
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

// Present returns the present or the latest session, nil before the first one, and the connection of it or
// of the session being begun.
func (k *Keeper) Present() (*Epoch, *zk.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ep, k.conn
}

// Await waits for a session that is attached and confirmed by a heartbeat.
func (k *Keeper) Await(ctx context.Context) (found *Epoch, err error) {
	err = k.untilSession(ctx, func(e *Epoch) (bool, error) {
		if found = e; e == nil {
			return false, nil
		}
		// A server may have come with a longest timeout that leaves no room for heartbeats: no wait ends
		// that, so fail as Dial does.
		return e.Valid(), k.opt.checkTimeout(e.Timeout())
	})
	return found, err
}

// AwaitValid waits until the session is attached and confirmed.
func (e *Epoch) AwaitValid(ctx context.Context) error {
	return e.k.untilSession(ctx, func(now *Epoch) (bool, error) {
		if e.Ended() {
			return false, zk.ErrSessionExpired
		}
		return now == e && e.Valid(), nil
	})
}

// untilSession waits until good accepts the session that has a connection. It asks good after each
// change, and with nil while there is no such session.
func (k *Keeper) untilSession(ctx context.Context, good func(*Epoch) (bool, error)) error {
	for {
		k.mu.Lock()
		e, changed := k.ep, k.changed
		if e != nil && (!k.attached || e.Ended()) {
			e = nil
		}
		k.mu.Unlock()
		if ctx.Err() != nil {
			return CtxErr(ctx)
		}
		if ok, err := good(e); ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// pulse is the state of the heartbeat between two wake-ups of keepAlive.
type pulse struct {
	changed <-chan struct{} // closed when the session changes
	answers chan answer
	flying  *Epoch    // whose heartbeat is under way
	sent    Reading   // when the latest heartbeat was sent
	retry   time.Time // when to send one after a failure
	failed  int       // heartbeats that failed in a row
}

// answer is the outcome of a heartbeat.
type answer struct {
	e    *Epoch
	sent Reading
	err  error
}

// keepAlive sends heartbeats and watches the deadline.
//
// A heartbeat is a sync, not a ping: only for syncs and writes does the server promise to
// touch the session at its leader. So a session that writes needs no heartbeats.
func (k *Keeper) keepAlive() {
	p := pulse{answers: make(chan answer, 1)}
	for wait := time.Duration(0); ; wait = k.pulse(&p) {
		select {
		case <-time.After(wait):
		case <-p.changed:
			p.failed = 0
		case a := <-p.answers:
			k.answered(&p, a)
		case <-k.cleaning.Done():
			if p.flying != nil {
				<-p.answers // the connection is closing: it will not take long
			}
			return
		}
	}
}

// pulse checks the deadline, sends a heartbeat if one is due, and returns when
// to look again.
func (k *Keeper) pulse(p *pulse) time.Duration {
	k.mu.Lock()
	e, attached := k.ep, k.attached
	p.changed = k.changed
	k.mu.Unlock()
	if e == nil || e.Ended() {
		return time.Minute // a change wakes this goroutine
	}
	e.checkDeadline()
	now, t := k.Now(), e.Timeout()
	wait := min(max(t/20, 20*time.Millisecond), 500*time.Millisecond)
	if left := e.Remaining(now); left > 0 {
		wait = min(wait, left)
	}
	since, due := e.quiet(now)
	if p.failed > 0 { // again, after a moment
		since, due = 0, time.Until(p.retry)
	}
	switch {
	case p.flying != nil:
		if attached && now.Since(p.sent) > t*2/5 {
			// The server keeps the connection but does not answer: another one
			// may, while there is time.
			k.opt.Log.Info("heartbeat unanswered, reconnecting", "session", recipe.Session(e.sid),
				"server", e.conn.Session().Server)
			e.conn.Reconnect()
		}
	case !attached:
	case since >= due:
		p.flying, p.sent = e, now
		e.asking()
		go func() {
			err := e.conn.Confirm(k.cleaning)
			p.answers <- answer{e, now, err}
		}()
	default:
		wait = min(wait, max(due-since, time.Millisecond))
	}
	return wait
}

// answered takes the outcome of a heartbeat.
func (k *Keeper) answered(p *pulse, a answer) {
	p.flying = nil
	if a.err != nil {
		p.failed++
		p.retry = time.Now().Add(Backoff(min(p.failed, 5), 10*time.Millisecond, 200*time.Millisecond))
		return
	}
	p.failed = 0
	k.count.heartbeats.Add(1)
	a.e.confirm(a.sent)
}

// troubles logs why there is no connection: at once if no server can be used, and after a moment if
// some servers cannot be used and the others do not answer. It logs a reason once, and again only
// after there was a connection.
type troubles struct {
	k *Keeper

	mu       sync.Mutex
	servers  int           // how many there are
	patience time.Duration // how long to wait for another server when one cannot be used
	latest   map[string]error
	said     map[string]string
	timer    *time.Timer // nil while nothing waits to be said
}

const troublePatience = 300 * time.Millisecond

// add records why a server could not be used.
func (t *troubles) add(server string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latest[server] = err
	switch {
	case len(t.latest) >= t.servers:
		t.say()
	case t.timer == nil:
		t.timer = time.AfterFunc(t.patience, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.timer != nil {
				t.say()
			}
		})
	}
}

// say logs the reasons that are new. t.mu is held.
func (t *troubles) say() {
	t.stop()
	if t.k.isDraining() {
		return
	}
	for server, err := range t.latest {
		if text := err.Error(); t.said[server] != text {
			t.said[server] = text
			t.k.opt.Log.Warn("no connection to server", "server", server, "err", err)
		}
	}
}

// stop ends the timer. t.mu is held.
func (t *troubles) stop() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// over forgets the reasons, because there is a connection.
func (t *troubles) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stop()
	clear(t.latest)
	clear(t.said)
}
