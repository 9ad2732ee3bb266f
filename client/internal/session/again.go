package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// ErrAgain makes Again repeat its function without a pause.
var ErrAgain = errors.New("session: again")

// Again runs f, which must be safe to repeat, until its outcome is known.
func Again(ctx context.Context, f func() error) error {
	for n := 1; ; {
		err := f()
		switch {
		case errors.Is(err, ErrAgain):
			continue
		case !errors.Is(err, zk.ErrUncertain):
			return err
		}
		if err := Pause(ctx, Backoff(n, time.Millisecond, time.Second)); err != nil {
			return err
		}
		n++
	}
}

// Pause sleeps for the time d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return CtxErr(ctx)
	}
}

// Backoff returns the time to wait before attempt n (1, 2, …). The time doubles from `first` up to `last`. At
// random, up to a quarter is added or subtracted.
func Backoff(n int, first, last time.Duration) time.Duration {
	d := last
	if n < 16 {
		d = min(last, first<<(n-1))
	}
	return d*3/4 + rand.N(d/2+1)
}

// CtxErr returns the error of a context that has ended. It includes the cause, such as the loss of the
// context's lease.
func CtxErr(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case cause == nil || errors.Is(err, cause):
		return err
	case errors.Is(cause, zk.ErrClosed):
		return zk.ErrClosed // the keeper was closed; the caller's context has not ended
	}
	return fmt.Errorf("%w: %w", err, cause)
}
