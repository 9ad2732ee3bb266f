package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// Begin begins the first session. refused() is called when the servers refuse the identities.
func (k *Keeper) Begin(refused func(why error)) error {
	k.refused = refused
	if err := k.beginSession(); err != nil {
		k.endLife(zk.ErrClosed)
		return err
	}
	k.loops.Go(k.keepAlive)
	return nil
}

// Greet waits until the first session is usable. If it fails it closes the keeper; the error also says why
// there is no connection.
func (k *Keeper) Greet(ctx context.Context) error {
	err := k.untilUsable(ctx)
	if err == nil {
		return nil
	}
	trouble := k.Conn().Trouble()
	k.shutdown() // no lock was taken yet, so there are no nodes to remove: close at once
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
	// If the timeout is too short for the margin, no heartbeat can make the session usable, so fail at once.
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

// Close ends the calls and the objects that depend on the session. It removes abandoned nodes until ctx ends,
// or until the session is over according to this client's clock. Then it closes the session, which removes
// the remaining nodes. It returns the error of ctx if ctx ended before all abandoned nodes were removed; the
// keeper is closed in any case.
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

// awaitReaper waits until the abandoned nodes are removed, or ctx ends. If no server answers, it waits only
// until the end of the session, because that removes the nodes.
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

// beginDraining ends all attempts; `first` reports whether this is the first call.
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
		conn := k.conn // the keeper opens no connection after this one
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

// closePatience bounds the wait for the answer to the request that closes the session.
const closePatience = 500 * time.Millisecond
