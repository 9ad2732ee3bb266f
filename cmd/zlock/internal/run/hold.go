package run

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// Hold is zlock hold.
func Hold() *call.Command {
	return &call.Command{
		Name: "hold", Args: "PATH…", Paths: true, Least: 1, Most: -1,
		Does: "hold a lock until standard input ends or a signal comes",
		Help: `For scripts and coprocesses: prints 'locked TOKEN SEQUENCER' once the lock is held
and releases it when standard input ends. The exit code is then 0. It is 122 if the
lock is lost, and otherwise that of run. If standard input is neither a pipe nor a
terminal, as for 'zlock hold P &' in a script, it holds the lock until a signal comes.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			lock := addLockFlags(fs)
			conn := connect.AddFlags(fs)
			return func(c *call.Call) error { return hold(c, lock, conn) }
		},
	}
}

func hold(c *call.Call, lock *lockFlags, conn *connect.Flags) error {
	if err := lock.check(); err != nil {
		return err
	}
	_, chroot, err := conn.Address(c.Getenv)
	if err != nil {
		return err
	}
	return connect.WithSession(c, conn, func(ctx context.Context, cl *client.Client) error {
		if _, err := inherited(ctx, c, cl, chroot, c.Args, false, lock.mode()); err != nil {
			return err
		}
		lease, err := lock.acquire(ctx, newWaitTeller(c.App, cl, conn.Quiet), taskOf(c.Getenv), c.Args)
		if err != nil {
			return err
		}
		s := holding{App: c.App, lease: lease}
		if err := keepHold(ctx, c, lock, &s, conn.Quiet); err != nil {
			s.giveBack()
			return err
		}
		return cli.Exit(s.release(call.ExitOK)) // another code if the release finds that the lock was lost
	})
}

// endsByItself reports whether the end of a file shows that the other side wants to end, as with pipes,
// sockets and terminals. A shell gives /dev/null to a background job: its end shows nothing.
func endsByItself(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 || call.IsTerminal(f)
}

// keepHold holds the lock until standard input ends. It returns an error if something else ends the hold.
func keepHold(ctx context.Context, c *call.Call, lock *lockFlags, s *holding, quiet bool) error {
	lease := s.lease
	first := lease.Sequencer()
	if _, err := fmt.Fprintf(c.Stdout, "locked %s %s\n", first.Token, first); err != nil {
		return err
	}
	call.OutliveReaders()
	eof := make(chan struct{})
	if endsByItself(c.Stdin) {
		go func() {
			_, _ = io.Copy(io.Discard, c.Stdin)
			close(eof)
		}()
	} else if !quiet {
		c.Say("standard input is neither a pipe nor a terminal: zlock holds the lock until a signal comes")
	}
	for revoked := lease.Asked(); ; {
		select {
		case <-eof:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-lease.Lost():
			c.Say("%v", lease.Err())
			return cli.Exit(s.lossCode())
		case r := <-revoked:
			if lock.isRevocable() {
				return cli.Exit(call.ExitRevoked)
			}
			c.Say("%s", requestText(describe(c.Args), r))
			revoked = nil
		}
	}
}
