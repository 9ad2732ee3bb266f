package node

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/internal/release"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// Command is zlock node.
func Command() *call.Command {
	return &call.Command{
		Name: "node", Args: "VERB [OPTIONS] …", Least: 1, Most: -1, Words: Verbs(),
		Does: "look at nodes and change them: ls, get, set, create, rm …",
		Help: `The options of zlock come before the verb, and the options of the verb after it. The verbs:

` + Help() + `
The words of ZooKeeper's zkCli work too, and the answers are zkCli's. -o plain prints one
name or value per line, -o json one object. At a terminal, zlock asks before it
removes a node with all nodes below it, unless -y is given.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error { return setupNode(fs, nodeWords) },
	}
}

// PromptCommand is zlock sh.
func PromptCommand() *call.Command {
	return &call.Command{
		Name: "sh", Args: "[VERB [OPTIONS] …]", Most: -1, Words: Verbs(),
		Does: "a prompt for the verbs of zlock node",
		Help: `The verbs are those of zlock node, on one session: ephemeral nodes and watches stay until
quit. At a terminal the Tab key completes verbs and paths; otherwise zlock reads the verbs
from standard input, one per line, like zkCli.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error { return setupNode(fs, shellWords) },
	}
}

func setupNode(fs *pflag.FlagSet, run func(context.Context, *call.Call, *Shell) error) (
	do func(*call.Call) error) {
	fs.SetInterspersed(false) // leave the options after the verb to the verb
	format := cli.AddOutput(fs, "table (as zkCli), json (one object per line) or plain (one value per line)",
		call.Table, call.JSON, call.Plain)
	conn := connect.AddFlags(fs)
	return func(c *call.Call) error {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		session, err := connect.DialNodes(ctx, c, conn)
		if err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), connect.CloseTimeout)
			defer cancel()
			_ = session.Close(ctx)
		}()
		return run(ctx, c, &Shell{Conn: session, In: c.Stdin, Out: c.Stdout, Err: c.Stderr,
			Format: *format, Terminal: c.Terminal && call.IsTerminal(c.Stdin),
			Version: "zlock " + release.Version()})
	}
}

func nodeWords(ctx context.Context, c *call.Call, s *Shell) error {
	err := s.Do(ctx, c.Args)
	if err == nil && Waits(c.Args) {
		select {
		case <-ctx.Done():
		case <-s.Conn.Over():
			err = s.Conn.Err()
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrUnknown):
		return cli.Usagef("%v", err)
	}
	if _, usage := errors.AsType[*cli.UsageError](err); usage {
		return err
	}
	return cli.Exitf(call.ExitNo, "%v", err)
}

func shellWords(ctx context.Context, c *call.Call, s *Shell) error {
	switch {
	case len(c.Args) > 0:
		return nodeWords(ctx, c, s)
	case s.Terminal:
		return s.Prompt(ctx, c.Stdin, os.Stdout)
	}
	return s.Lines(ctx)
}
