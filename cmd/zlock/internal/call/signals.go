package call

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/supervise"
)

// SignalError reports that a signal ended zlock.
type SignalError struct{ Sig syscall.Signal }

func (e *SignalError) Error() string {
	return fmt.Sprintf("ended by SIG%s", supervise.SignalName(e.Sig))
}

// Unwrap returns the exit code for this signal, as an error without a message.
func (e *SignalError) Unwrap() error { return cli.Exit(supervise.SignalCode(e.Sig)) }

// OutliveReaders makes zlock ignore SIGPIPE. Otherwise zlock would end, and lose its lock, when the reader of
// its messages is gone.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// Interruptible returns a context that ends when a signal asks zlock to end. Its cause is then a
// *SignalError. The second result stops waiting for signals, and ends the context.
func Interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	sigs, done := supervise.Listen(supervise.EndSignals...), make(chan struct{})
	go func() {
		defer close(done)
		for sig := range sigs {
			cancel(&SignalError{sig.(syscall.Signal)})
		}
	}()
	return ctx, sync.OnceFunc(func() {
		// The goroutine still handles the signals that have arrived, so that the caller's [Interrupted] knows them.
		signal.Stop(sigs)
		close(sigs)
		<-done
		cancel(nil)
	})
}

// Interrupted returns the signal that ended a context of Interruptible, as an error. It returns nil if no
// signal has ended ctx.
func Interrupted(ctx context.Context) error {
	if e, ok := errors.AsType[*SignalError](context.Cause(ctx)); ok {
		return e
	}
	return nil
}

// Sleep waits for a while. If ctx ends first, it returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// WhileRead returns a context that ends when the reader of standard output is gone. Otherwise a command that
// waits for news would run on without a reader: only its next line would bring it a SIGPIPE.
func (a *App) WhileRead(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if out, ok := a.Stdout.(*os.File); ok {
		go func() {
			if awaitUnread(int(out.Fd())) {
				cancel(&SignalError{syscall.SIGPIPE})
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}
