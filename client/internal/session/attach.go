package session

import (
	"context"
	"errors"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// beginSession opens the next session. Once the session exists, the connection calls attach().
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
	k.mu.Lock() // the connection's callbacks must wait until k.conn is set
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

// Conn returns the connection of the present session, or of the session that is being opened.
func (k *Keeper) Conn() *zk.Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.conn
}

// attach() records a connection that carries the session.
func (k *Keeper) attach(e *Epoch) {
	k.mu.Lock() // beginSession sets the connection under this lock
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

// detach() records that there is no usable connection.
func (k *Keeper) detach() {
	k.update(func() { k.attached = false })
}

// expired() ends the epoch of a session that is over, and begins the next session.
func (k *Keeper) expired(e *Epoch) {
	err := k.Conn().Err()
	k.opt.Log.Info("session over", "session", recipe.Session(e.sid), "err", err)
	e.finish(Expired)
	k.detach()
	if errors.Is(err, zk.ErrAuthFailed) {
		k.refused(err)
		// Try again, because an operator may restore the identities on the server.
		k.Detached(func(ctx context.Context) {
			if Pause(ctx, time.Second) == nil {
				_ = k.beginSession()
			}
		})
		return
	}
	_ = k.beginSession()
}

// Await waits for a session that is attached and confirmed by a heartbeat.
func (k *Keeper) Await(ctx context.Context) (found *Epoch, err error) {
	err = k.untilSession(ctx, func(e *Epoch) (bool, error) {
		if found = e; e == nil {
			return false, nil
		}
		// The present server may grant a timeout that is too short for heartbeats. Waiting would not help, so
		// fail as Dial does.
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

// untilSession waits until good() accepts the connected session. It calls good() after each change; the
// argument is nil while no session is connected.
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
