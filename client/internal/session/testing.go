package session

import (
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// The functions of this file are only for tests of packages that keep something in a session.

// Stub returns a keeper with a session that began now and that no server knows. It removes nodes through
// conn, or never if conn is nil.
func Stub(o Options, id int64, timeout time.Duration, conn *zk.Conn) (*Keeper, *Epoch) {
	k, err := New("none", o)
	if err != nil {
		panic(err) // cannot happen: "none" is a valid name of a server
	}
	if conn == nil {
		k.reaper.slots = nil
	}
	e := newEpoch(k)
	e.conn = conn
	e.begin(id, timeout)
	k.conn, k.ep, k.attached = conn, e, true
	return k, e
}

// End ends the session as if the server, or Close, had done it.
func (e *Epoch) End(why Reason) { e.finish(why) }

// Lose ends everything that depends on the session, but not the session.
func (e *Epoch) Lose(why Reason) { e.loseAll(why) }

// Dependents returns how many depend on the session.
func (e *Epoch) Dependents() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.holds)
}

// Crowded reports whether a call would have to wait after more further nodes were abandoned in dir.
func (k *Keeper) Crowded(dir string, more int) bool {
	for range more {
		k.crowd.abandon(dir)
		defer k.crowd.gone(dir)
	}
	return k.crowd.room(dir) != nil
}

// PretendAttached makes the keeper believe that its connection works, until it learns otherwise.
func (k *Keeper) PretendAttached() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.attached = true
	k.broadcast()
}
