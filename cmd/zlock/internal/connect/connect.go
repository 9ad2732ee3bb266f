// Package connect connects to the servers of a call: with a session, or through the admin listener of a
// zlockd. It has the flags for that. It computes how long a session timeout must be so that zlock can end
// COMMAND in time.
package connect

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
)

// AnswerTimeout is how long zlock waits for the answer to a request that a server can answer at once.
const AnswerTimeout = 15 * time.Second

// AnswerWithin returns a context that ends after d with an error about the missing answer.
func AnswerWithin(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, d,
		cli.Exitf(call.ExitNoSession, "no answer from the servers within %v", d))
}

// logger returns a logger for the client. It shows warnings and errors, or more or less as the flags say.
func (f *Flags) logger(a *call.App) *slog.Logger {
	switch {
	case f.verbose > 1:
		return slog.New(slog.NewTextHandler(a.PatientStderr(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	case f.verbose > 0:
		return slog.New(slog.NewTextHandler(a.PatientStderr(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	case f.Quiet:
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(plainLog{a})
}

// plainLog is a log handler that writes warnings as zlock writes its own messages.
type plainLog struct{ a *call.App }

func (plainLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (p plainLog) WithAttrs([]slog.Attr) slog.Handler         { return p }
func (p plainLog) WithGroup(string) slog.Handler              { return p }

// Handle writes the message and the values. It leaves out the keys, which people do not need.
func (p plainLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(at slog.Attr) bool {
		if at.Key == "err" {
			text += ":"
		}
		text += " " + at.Value.String()
		return true
	})
	p.a.Say("%s", text)
	return nil
}

// Dial opens a session. If the options can never work, the error is a usage error. If there is no session in
// time, the error has the exit code 120.
func Dial(ctx context.Context, c *call.Call, f *Flags) (*client.Client, error) {
	servers, chroot, err := f.Address(c.Getenv)
	if err != nil {
		return nil, err
	}
	opts, err := f.Options(c.App)
	if err != nil {
		return nil, err
	}
	limit, cancel := context.WithTimeout(ctx, f.ConnectTimeout)
	defer cancel()
	cl, err := client.Dial(limit, servers+chroot, opts...)
	switch {
	case err == nil:
		return cl, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, client.ErrInvalid) && f.Margin > 0:
		return nil, tooShort(ctx, c, *f, err)
	case errors.Is(err, client.ErrInvalid):
		return nil, cli.Usagef("%v", err)
	case limit.Err() != nil:
		why := ""
		if _, trouble, ok := strings.Cut(err.Error(), context.DeadlineExceeded.Error()+": "); ok {
			why = ": " + strings.ReplaceAll(trouble, "\n", "; ")
		}
		return nil, cli.Exitf(call.ExitNoSession, "no usable session with %s within %v%s%.0w", servers,
			f.ConnectTimeout, why, err) // %.0w prints nothing, as why has the text, but keeps err for errors.Is
	default:
		return nil, cli.Exitf(call.ExitNoSession, "no session with %s: %w", servers, err)
	}
}

// CloseTimeout bounds how long a command that ends waits until the server has removed its nodes. Nodes that
// are left then end with the session.
const CloseTimeout = 5 * time.Second

// HangUp ends the session.
func HangUp(c *call.Call, cl *client.Client) {
	limit := CloseTimeout
	if cl.State() != client.StateReady {
		limit = 0 // do not wait: no server would answer, and the nodes end with the session
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := cl.Close(ctx); err != nil && limit > 0 {
		c.Say("%v", err)
	}
}

// WithSession runs f() with a session. The session ends after f(), at a signal, or at the command's timeout.
func WithSession(c *call.Call, conn *Flags, f func(context.Context, *client.Client) error) error {
	ctx, stop := call.Interruptible()
	defer stop()
	ctx, cancel := AnswerWithin(ctx, conn.Timeout)
	defer cancel()
	cl, err := Dial(ctx, c, conn)
	if err != nil {
		return err
	}
	defer HangUp(c, cl)
	err = f(ctx, cl)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// DialNodes opens a session for commands that use nodes, not locks.
func DialNodes(ctx context.Context, c *call.Call, f *Flags) (*zk.Conn, error) {
	servers, chroot, err := f.Address(c.Getenv)
	if err != nil {
		return nil, err
	}
	cfg, err := f.ready(c.App)
	if err != nil {
		return nil, err
	}
	limit, cancel := context.WithTimeout(ctx, f.ConnectTimeout)
	defer cancel()
	session, err := zk.Dial(limit, servers+chroot, zk.Options{Timeout: f.SessionTimeout, TLS: cfg,
		Auth: f.Credentials, Logger: f.logger(c.App)})
	switch {
	case err == nil:
		return session, nil
	case errors.Is(err, zk.ErrInvalid):
		return nil, cli.Usagef("%v", err)
	}
	return nil, cli.Exitf(call.ExitNoSession, "no usable session with %s within %v: %w", servers,
		f.ConnectTimeout, err)
}
