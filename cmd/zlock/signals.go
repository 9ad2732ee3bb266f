package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalError is the end of zlock by a signal.
type signalError struct{ sig syscall.Signal }

func (e *signalError) Error() string { return fmt.Sprintf("ended by SIG%s", signalName(e.sig)) }

// asExit makes the conventional exit code of an error that is a signal's.
func asExit(err error) error {
	if e := (*signalError)(nil); errors.As(err, &e) {
		return exit(signalCode(e.sig))
	}
	return err
}

// signals are what zlock listens to. What it was started to ignore, as nohup and
// shells do for their background jobs, it goes on ignoring, and so does COMMAND.
type signals struct {
	ch chan os.Signal
}

func listen(sigs ...os.Signal) *signals {
	s := &signals{ch: make(chan os.Signal, 16)}
	for _, sig := range sigs {
		if !signal.Ignored(sig) {
			signal.Notify(s.ch, sig)
		}
	}
	return s
}

func (s *signals) stop() { signal.Stop(s.ch) }

// interruptible returns a context that ends, with a *signalError, when the user
// wants zlock to end.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := listen(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case sig := <-s.ch:
			cancel(&signalError{sig.(syscall.Signal)})
		case <-quit:
		}
	}()
	return ctx, sync.OnceFunc(func() {
		// What has come must not be lost: the caller asks [interrupted].
		s.stop()
		close(quit)
		<-done
		select {
		case sig := <-s.ch:
			cancel(&signalError{sig.(syscall.Signal)})
		default:
			cancel(nil)
		}
	})
}

// interrupted returns the signal that ended a context of interruptible, nil if
// none came before it was stopped.
func interrupted(ctx context.Context) error {
	if e := (*signalError)(nil); errors.As(context.Cause(ctx), &e) {
		return e
	}
	return nil
}

// whileRead returns a context that ends when nobody is left to read the standard
// output, as SIGPIPE ends a program that writes. One that waits for news would
// not notice while there are none, and outlive its reader forever.
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

// awaitUnread waits until the other end of a pipe, socket or terminal is closed.
func awaitUnread(fd int) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(fd)}} // errors are told without being asked for
		_, err := unix.Poll(fds, -1)
		switch {
		case err == nil:
			return fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		case err != unix.EINTR:
			return false
		}
	}
}
