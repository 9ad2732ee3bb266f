package zk

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// submit sends calls one after the other, or queues them until there is a connection. If soon is true, the
// calls may wait a moment for other calls.
func (c *Conn) submit(soon bool, calls ...*call) {
	c.mu.Lock()
	for _, r := range calls {
		if err := c.fits(r); err != nil {
			c.refuse(calls, err)
			return
		}
	}
	c.put(soon, calls...)
}

// fits returns an error if the request of a call is too long.
func (c *Conn) fits(r *call) error {
	if size := len(r.frame) - 4; size > c.opt.MaxRequest {
		return fmt.Errorf("%w: %s %s, %d bytes", ErrTooLarge, r.op, r.path, size)
	}
	return nil
}

// put does the work of submit. It is called with c.mu held, and unlocks c.mu.
func (c *Conn) put(soon bool, calls ...*call) {
	switch {
	case c.err != nil:
		c.refuse(calls, c.err)
	case c.closing:
		c.refuse(calls, ErrClosed)
	case c.link == nil:
		c.queue = append(c.queue, calls...)
		c.mu.Unlock()
	default:
		for _, r := range calls {
			c.link.put(r)
		}
		if soon {
			c.link.flushSoon() // unlocks c.mu
		} else {
			c.link.flush() // unlocks c.mu
		}
	}
}

// refuse ends calls that wait for a connection. It is called with c.mu held and unlocks it.
func (c *Conn) refuse(calls []*call, err error) {
	for _, r := range calls {
		r.finish(err)
	}
	c.mu.Unlock()
}

// resend repeats a read, after a moment, because it failed between servers. It returns false if no caller
// waits for the read.
func (c *Conn) resend(l *link, r *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.take(r)
	if r.left || r.stage == over {
		return false
	}
	r.stage = waiting
	r.tries++
	time.AfterFunc(backoff(r.tries, 5*time.Millisecond, time.Second), func() {
		c.mu.Lock()
		if r.stage == over {
			c.mu.Unlock()
			return
		}
		c.put(false, r)
	})
	return true
}

// leave gives up a call because ctx has ended. It returns nil if the call was over already.
func (c *Conn) leave(ctx context.Context, r *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.left = true
	switch {
	case r.stage == over:
		return nil
	case r.stage == waiting:
		c.queue = slices.DeleteFunc(c.queue, func(x *call) bool { return x == r })
		r.finish(ctx.Err())
	case !r.repeat:
		return &uncertain{ctx.Err()}
	}
	return ctx.Err()
}

// AddAuth presents one more identity, now and on every later connection. If the server refuses it,
// the session ends with ErrAuthFailed.
func (c *Conn) AddAuth(ctx context.Context, a Auth) error {
	r := &Reply[struct{}]{call: *authCall(a), c: c}
	if err := c.fits(&r.call); err != nil {
		return err // a server would close every later connection, because each presents all identities
	}
	c.mu.Lock()
	c.auth = append(c.auth, a)
	c.mu.Unlock()
	return errOf(do(ctx, c, r))
}

func errOf[T any](_ T, err error) error { return err }

// authCall returns the call that presents an identity. The answer to the call may arrive before earlier
// answers.
func authCall(a Auth) *call {
	r := &call{}
	b := r.begin(jute.OpAuth, a.Scheme, len(a.Scheme)+len(a.Secret)+12)
	b = jute.AppendString(jute.AppendInt(b, 0), a.Scheme)
	r.end(jute.AppendString(b, string(a.Secret))) // the secret is never null
	r.xid, r.repeat = jute.XidAuth, true
	return r
}
