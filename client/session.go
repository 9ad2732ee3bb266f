package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// State is the state of a client's session.
type State uint8

const (
	// StateConnecting: there is no session yet.
	StateConnecting State = iota
	// StateReady: the server answers; locks can be granted.
	StateReady
	// StateSuspended: there is no usable connection, but the session may live.
	// Leases stay valid until their deadline.
	StateSuspended
	// StateLost: the session is over, or was not confirmed in time. Leases are lost.
	StateLost
	// StateClosed: Close was called.
	StateClosed
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
func (k *keeper) beginSession() error {
	o := zk.Options{
		Timeout: k.opt.timeout, TLS: k.opt.tls, Auth: k.opt.auth, Dial: k.opt.dial,
		Counters: &k.count.wire, Logger: k.opt.log, OnTrouble: k.troubles.add,
	}
	e := &epoch{k: k, confirmed: k.opt.clock.Now(), gone: make(chan struct{}), holds: map[dependent]struct{}{}}
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
		return ErrClosed
	}
	conn, err := zk.Open(k.address, o)
	if err == nil {
		e.conn, k.conn = conn, conn
	}
	return err
}

// session returns the connection of the present session.
func (k *keeper) session() *zk.Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.conn
}

// attach records a connection that carries the session.
func (k *keeper) attach(e *epoch) {
	k.mu.Lock() // beginSession notes the connection under it
	s := e.conn.Session()
	k.mu.Unlock()
	e.begin(s.ID, s.Timeout)
	k.update(func() {
		if k.cleaning.Err() == nil {
			k.ep, k.attached = e, true
		}
	})
	k.opt.log.Debug("session attached", "session", recipe.Session(s.ID), "timeout", s.Timeout)
}

// detach records that there is no usable connection.
func (k *keeper) detach() {
	k.update(func() { k.attached = false })
}

// expired ends the epoch of a session that is over, and begins the next session.
func (k *keeper) expired(e *epoch) {
	err := k.session().Err()
	k.opt.log.Info("session over", "session", recipe.Session(e.sid), "err", err)
	e.finish(overExpired)
	k.detach()
	if errors.Is(err, zk.ErrAuthFailed) {
		k.refused(err)
		// The identities may be changed back on the server: try again.
		k.detached(func(ctx context.Context) {
			if pause(ctx, time.Second) == nil {
				_ = k.beginSession()
			}
		})
		return
	}
	_ = k.beginSession()
}

// broadcast wakes the goroutines that wait for a change of the session. k.mu is held.
func (k *keeper) broadcast() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// update makes a change of the session and brings the state up to date in the same step, so that
// no caller sees one without the other and the states are told in their order.
func (k *keeper) update(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.state
	change()
	k.broadcast()
	k.state = k.stateNow()
	if k.state != old {
		k.moved(old, k.state)
	}
}

// stateNow derives the state from what is known of the session. k.mu is held.
func (k *keeper) stateNow() State {
	switch e := k.ep; {
	case k.state == StateClosed:
		return StateClosed
	case e == nil, k.state == StateConnecting && !e.alive():
		return StateConnecting
	case !e.alive():
		return StateLost
	case !k.attached:
		return StateSuspended
	}
	return StateReady
}

// epoch waits for a session that is attached and confirmed by a heartbeat.
func (k *keeper) epoch(ctx context.Context) (found *epoch, err error) {
	err = k.untilSession(ctx, func(e *epoch) (bool, error) {
		if found = e; e == nil {
			return false, nil
		}
		// A server may have come with a longest timeout that leaves no room for heartbeats: no wait ends
		// that, so fail as Dial does.
		return e.valid(), k.opt.checkTimeout(e.sessionTimeout())
	})
	return found, err
}

// awaitValid waits until the session is attached and confirmed.
func (e *epoch) awaitValid(ctx context.Context) error {
	return e.k.untilSession(ctx, func(now *epoch) (bool, error) {
		if e.ended() {
			return false, ErrSessionExpired
		}
		return now == e && e.valid(), nil
	})
}

// untilSession waits until good accepts the session that has a connection. It asks good after each
// change, and with nil while there is no such session.
func (k *keeper) untilSession(ctx context.Context, good func(*epoch) (bool, error)) error {
	for {
		k.mu.Lock()
		e, changed := k.ep, k.changed
		if e != nil && (!k.attached || e.ended()) {
			e = nil
		}
		k.mu.Unlock()
		if ctx.Err() != nil {
			return ctxErr(ctx)
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
	flying  *epoch    // whose heartbeat is under way
	sent    reading   // when the latest heartbeat was sent
	retry   time.Time // when to send one after a failure
	failed  int       // heartbeats that failed in a row
}

// answer is the outcome of a heartbeat.
type answer struct {
	e    *epoch
	sent reading
	err  error
}

// keepAlive sends heartbeats and watches the deadline.
//
// A heartbeat is a sync, not a ping: only for syncs and writes does the server promise to
// touch the session at its leader. So a session that writes needs no heartbeats.
func (k *keeper) keepAlive() {
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
func (k *keeper) pulse(p *pulse) time.Duration {
	k.mu.Lock()
	e, attached := k.ep, k.attached
	p.changed = k.changed
	k.mu.Unlock()
	if e == nil || e.ended() {
		return time.Minute // a change wakes this goroutine
	}
	e.checkDeadline()
	now, t := k.opt.clock.Now(), e.sessionTimeout()
	wait := min(max(t/20, 20*time.Millisecond), 500*time.Millisecond)
	if left := e.remaining(now); left > 0 {
		wait = min(wait, left)
	}
	since, due := e.quiet(now)
	if p.failed > 0 { // again, after a moment
		since, due = 0, time.Until(p.retry)
	}
	switch {
	case p.flying != nil:
		if attached && now.since(p.sent) > t*2/5 {
			// The server keeps the connection but does not answer: another one
			// may, while there is time.
			k.opt.log.Info("heartbeat unanswered, reconnecting", "session", recipe.Session(e.sid),
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
func (k *keeper) answered(p *pulse, a answer) {
	p.flying = nil
	if a.err != nil {
		p.failed++
		p.retry = time.Now().Add(backoff(min(p.failed, 5), 10*time.Millisecond, 200*time.Millisecond))
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
	k *keeper

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
			t.k.opt.log.Warn("no connection to server", "server", server, "err", err)
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
