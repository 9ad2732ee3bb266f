// Package signal passes notes between goroutines of a server: a token that there is news, a value for the
// metrics, a step for the trace. No sender waits for a receiver.
package signal

import (
	"context"
	"time"
)

// Signal holds a token when there is news. If several pieces of news arrive before the receiver looks, it
// receives one token.
type Signal chan struct{}

// New returns a signal without news.
func New() Signal { return make(Signal, 1) }

// Send notifies the receiver without waiting for it.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Pause waits for d or until ctx ends. It returns false if ctx has ended.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
