//go:build !windows

package run

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/cmd/zlock/internal/supervise"
	"github.com/zlockd/zlockd/cmd/zlock/internal/ticket"
)

// runByRate waits for a draw from a rate. Then zlock executes COMMAND in its own place: nothing is given back
// after COMMAND, so zlock need not stay.
func runByRate(c *call.Call, rate string, t *ticket.Flags, lock *lockFlags, run *runFlags,
	conn *connect.Flags) error {
	if err := run.only("rate", "http", "http-ca", "bearer-file", "nonblock", "timeout", "conflict-exit-code",
		"command", "quiet", "connect-timeout"); err != nil {
		return err
	}
	limit, per, err := parseRate(rate)
	switch {
	case err != nil:
		return err
	case len(c.Args) != 1:
		return cli.Usagef("--rate needs one PATH before --")
	}
	if err := lock.check(); err != nil {
		return err
	}
	exe, err := findExecutable(c.Dashed, run.shell)
	if err != nil {
		return err
	}
	t.Timeout = conn.ConnectTimeout
	k, err := t.All(c)
	if err != nil {
		return err
	}
	k.Secret, k.Path = ticket.NewSecret(), c.Args[0] // the secret makes a repeated request draw only once
	if err := draw(c, k, limit, per, t, lock, conn.Quiet); err != nil {
		return err
	}
	err = syscall.Exec(exe.path, exe.argv, os.Environ())
	return cli.Exitf(supervise.NotStarted(err), "%s: %w", exe.path, err)
}

// draw() waits until the server grants a draw.
func draw(c *call.Call, k *ticket.Asker, limit int, per time.Duration, t *ticket.Flags, lock *lockFlags,
	quiet bool) error {
	interrupt, stop := call.Interruptible()
	defer stop()
	send := func(ctx context.Context, wait time.Duration) (*ticket.Answer, error) {
		q := url.Values{"limit": {strconv.Itoa(limit)}, "per": {per.String()}, "wait": {wait.String()}}
		return k.Ask(ctx, http.MethodPost, "/v1/rates"+k.Path, q, nil)
	}
	a, err := lock.patience(t.Timeout, quiet).Await(interrupt, c, send, func(a *ticket.Answer) string {
		if a.Drawn || !a.NoDraw() {
			return ""
		}
		text := fmt.Sprintf("%s has had %d draws within %v", k.Path, limit, call.DurationText(per))
		if a.Retry > 0 {
			free := time.Now().Add(time.Duration(a.Retry) * time.Millisecond)
			text += ": the next draw is free at " + call.Clock(free)
		}
		return text
	})
	switch {
	case call.Interrupted(interrupt) != nil:
		return call.Interrupted(interrupt)
	case err != nil:
		return cli.Exitf(call.ExitNoSession,
			"no port for tickets (--http, ZLOCK_HTTP) granted a draw: %w", err)
	case a.Drawn:
		return nil
	case a.NoDraw():
		return &cli.ExitError{Code: lock.conflict}
	}
	return fmt.Errorf("%s: %s", a.Error, a.Text)
}

// parseRate reads a rate such as 100/1m.
func parseRate(text string) (limit int, per time.Duration, err error) {
	number, span, _ := strings.Cut(text, "/")
	limit, err = strconv.Atoi(number)
	if err == nil {
		per, err = call.ParseDuration(span)
	}
	if err != nil || limit < 1 || per <= 0 {
		return 0, 0, cli.Usagef("--rate %q: want a number and a time, such as 100/1m", text)
	}
	return limit, per, nil
}
