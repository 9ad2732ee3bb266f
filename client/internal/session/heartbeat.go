package session

import (
	"time"

	"github.com/zlockd/zlockd/client/recipe"
)

// pulse is the state of the heartbeat between two wake-ups of keepAlive.
type pulse struct {
	changed <-chan struct{} // closed when the session changes
	answers chan answer
	flying  *Epoch    // the epoch of the unanswered heartbeat
	sent    Reading   // when the last heartbeat was sent
	retry   time.Time // when to send the next heartbeat after a failure
	failed  int       // number of failed heartbeats in a row
}

// answer is the outcome of a heartbeat.
type answer struct {
	e    *Epoch
	sent Reading
	err  error
}

// keepAlive sends heartbeats and watches the deadline.
//
// A heartbeat is a sync, not a ping. When a server answers a sync or a write, the leader has certainly heard
// of the session; after a ping this is not certain. So a session that writes often enough needs no
// heartbeats.
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
				<-p.answers // the connection is being closed, so the heartbeat's answer comes soon
			}
			return
		}
	}
}

// pulse() checks the deadline, sends a heartbeat if it is due, and returns the time until the next check.
func (k *Keeper) pulse(p *pulse) time.Duration {
	k.mu.Lock()
	e, attached := k.ep, k.attached
	p.changed = k.changed
	k.mu.Unlock()
	if e == nil || e.Ended() {
		return time.Minute // a change of the session ends this wait
	}
	e.checkDeadline()
	now, t := k.Now(), e.Timeout()
	wait := min(max(t/20, 20*time.Millisecond), 500*time.Millisecond)
	if left := e.Remaining(now); left > 0 {
		wait = min(wait, left)
	}
	since, due := e.quiet(now)
	if p.failed > 0 { // the last heartbeat failed: send the next one after a pause
		since, due = 0, time.Until(p.retry)
	}
	switch {
	case p.flying != nil:
		if attached && now.Since(p.sent) > t*2/5 {
			// The server keeps the connection but does not answer. Another server may answer in time.
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

// answered() handles the outcome of a heartbeat.
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

// Heartbeat is the time between two heartbeats of a session with timeout t.
func Heartbeat(t time.Duration) time.Duration { return t / 5 }

// quiet() returns the time since the session's last confirmation, and the time after which a heartbeat is
// due. A session without holds only keeps its places in queues, and needs fewer heartbeats.
func (e *Epoch) quiet(now Reading) (since, due time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	due = Heartbeat(e.timeout)
	if len(e.holds) == 0 {
		due = e.timeout / 3
	}
	if e.moved {
		return due, due
	}
	return now.Since(e.confirmed), due
}
