package main

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

// signalError reports that a signal ended zlock.
type signalError struct{ sig syscall.Signal }

func (e *signalError) Error() string {
	return fmt.Sprintf("ended by SIG%s", supervise.SignalName(e.sig))
}

// Unwrap gives zlock the conventional exit code, without a message.
func (e *signalError) Unwrap() error { return cli.Exit(supervise.SignalCode(e.sig)) }

// outliveReaders keeps a message without a reader from ending zlock, and with it the hold of a lock.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// interruptible returns a context that ends with a *signalError when a signal asks zlock to
// end.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	sigs, done := supervise.Listen(supervise.EndSignals...), make(chan struct{})
	go func() {
		defer close(done)
		for sig := range sigs {
			cancel(&signalError{sig.(syscall.Signal)})
		}
	}()
	return ctx, sync.OnceFunc(func() {
		// A signal that has come must not be lost: the caller asks [interrupted].
		signal.Stop(sigs)
		close(sigs)
		<-done
		cancel(nil)
	})
}

// interrupted returns the signal that ended a context of interruptible, nil if none came
// before its stop.
func interrupted(ctx context.Context) error {
	if e, ok := errors.AsType[*signalError](context.Cause(ctx)); ok {
		return e
	}
	return nil
}

// sleep waits for a while. If ctx ends before, it returns why.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// whileRead returns a context that ends when the reader of standard output is gone, as SIGPIPE
// ends a program that writes. Without it a command that waits for news would not notice until
// there are some, and might outlive its reader.
func (a *app) whileRead(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if out, ok := a.stdout.(*os.File); ok {
		go func() {
			if awaitUnread(int(out.Fd())) {
				cancel(&signalError{syscall.SIGPIPE})
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}
