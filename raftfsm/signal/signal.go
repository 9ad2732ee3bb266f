// Package signal is what goroutines of a server note for others: a token that there is news, a value for the
// metrics, a step for the trace. Nothing in it waits for the receiver.
package signal

import (
	"context"
	"time"
)

// Signal holds a token when there is news. Several pieces of news before the receiver looks are one.
type Signal chan struct{}

// New returns a signal without news.
func New() Signal { return make(Signal, 1) }

// Send tells the receiver. It does not wait.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Pause waits, and reports whether ctx goes on.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
