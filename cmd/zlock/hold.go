package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/cmd/internal/cli"
)

func holdCommand() *command {
	return &command{
		Name: "hold", Args: "PATH…", Paths: true, Least: 1, Most: -1,
		Does: "hold a lock until standard input ends or a signal comes",
		Help: `For scripts and coprocesses: prints 'locked TOKEN SEQUENCER' once the lock is held
and releases it when standard input ends. It exits 0 then, 122 as soon as the
lock is lost, and else as run does. Without a pipe or a terminal as standard input,
as for 'zlock hold P &' in a script, it holds the lock until a signal comes.`,
		Setup: func(fs *pflag.FlagSet) func(*call) error {
			lock := addLockFlags(fs)
			conn := addConnectFlags(fs)
			return func(c *call) error { return hold(c, lock, conn) }
		},
	}
}

func hold(c *call, lock *lockFlags, conn *connectFlags) error {
	if err := lock.check(); err != nil {
		return err
	}
	_, chroot, err := conn.address(c.getenv)
	if err != nil {
		return err
	}
	return withSession(c, conn, func(ctx context.Context, cl *client.Client) error {
		if _, err := inherited(ctx, c, cl, chroot, c.Args, false, lock.mode()); err != nil {
			return err
		}
		lease, err := lock.acquire(ctx, newWaitTeller(c.app, cl, conn.quiet), taskOf(c.getenv), c.Args)
		if err != nil {
			return err
		}
		s := holding{app: c.app, lease: lease}
		if err := keepHold(ctx, c, lock, &s, conn.quiet); err != nil {
			s.giveBack()
			return err
		}
		return cli.Exit(s.release(exitOK)) // reports a late loss, too
	})
}

// endsByItself reports whether the other end of a file decides when the file ends, as with
// pipes, sockets and terminals. A shell gives a background job /dev/null, whose end says
// nothing.
func endsByItself(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 || isTerminal(f)
}

// keepHold holds the lock until standard input ends; an error says what else ended the hold.
func keepHold(ctx context.Context, c *call, lock *lockFlags, s *holding, quiet bool) error {
	lease := s.lease
	first := lease.Sequencer()
	if _, err := fmt.Fprintf(c.stdout, "locked %s %s\n", first.Token, first); err != nil {
		return err
	}
	outliveReaders()
	eof := make(chan struct{})
	if endsByItself(c.stdin) {
		go func() {
			_, _ = io.Copy(io.Discard, c.stdin)
			close(eof)
		}()
	} else if !quiet {
		c.say("standard input is no pipe and no terminal: the lock is held until a signal comes")
	}
	for revoked := lease.Asked(); ; {
		select {
		case <-eof:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-lease.Lost():
			c.say("%v", lease.Err())
			return cli.Exit(s.lossCode())
		case r := <-revoked:
			if lock.isRevocable() {
				return cli.Exit(exitRevoked)
			}
			c.say("%s", requestText(describe(c.Args), r))
			revoked = nil
		}
	}
}
