package session

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// The functions of this file are only for tests of packages that keep something in a session.

// Stub returns a keeper with a session that began now and that no server knows. The keeper removes nodes
// through conn; if conn is nil, it never removes nodes.
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

// Lose ends every object that depends on the session, but not the session.
func (e *Epoch) Lose(why Reason) { e.loseAll(why) }

// Dependents returns how many holds depend on the session.
func (e *Epoch) Dependents() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.holds)
}

// Crowded reports whether a call in dir would have to wait if the given number of further nodes were
// abandoned there.
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

// Bubble returns the options of a stub whose clock is the virtual clock of a test in a synctest bubble. The
// margin is two seconds.
func Bubble() Options {
	return Options{Clock: bubbleClock{time.Now()}, Margin: 2 * time.Second, Log: slog.New(slog.DiscardHandler)}
}

type bubbleClock struct{ origin time.Time }

func (c bubbleClock) Now() Reading {
	d := time.Since(c.origin)
	return Reading{Mono: d, Boot: d, Wall: time.Now()}
}

// Unreachable returns a keeper whose server does not answer, and a session of that keeper which lasts a day.
// end() closes the keeper.
func Unreachable() (k *Keeper, e *Epoch, end func()) {
	conn, err := zk.Open("a", zk.Options{AttemptLimit: 1000 * time.Hour,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	if err != nil {
		panic(err) // cannot happen: "a" is a valid name of a server
	}
	k, e = Stub(Bubble(), 7, 24*time.Hour, conn)
	return k, e, func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = k.Close(ended)
	}
}
