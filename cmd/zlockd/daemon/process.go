package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/zlockd/zlockd/cmd/internal/release"
	"github.com/zlockd/zlockd/cmd/zlockd/internal/data"
	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1               // the server could not start, or failed later
	exitUsage  = 2               // wrong flags or configuration
	exitAtOnce = data.ExitAtOnce // stopped by a second signal
)

// daemon is zlockd with its streams and signals, so that tests can run it, too.
type daemon struct {
	stdout, stderr io.Writer
	signals        <-chan os.Signal
	hangups        <-chan os.Signal // each makes the daemon read its configuration again
	level          slog.LevelVar
	kerberos       Kerberos // nil: the program has no Kerberos
	start          func(context.Context, *settings.Settings, *slog.Logger) (process, error)
}

// process is a started server.
type process interface {
	// Ready waits until the server serves clients, and returns its addresses and mode.
	Ready(context.Context) (readyLine, error)
	// Line returns mode, leader and clients in one line.
	Line() string
	// Change applies the settings that need no restart, and reports whether users changed.
	Change(*settings.Settings, *slog.Logger) (users bool, err error)
	// Failed returns a channel that is closed when the server stops by itself.
	Failed() <-chan struct{}
	// Close shuts the server down, and returns when that is done or ctx ends.
	Close(ctx context.Context) error
}

// readyLine is the line on stdout that scripts read.
type readyLine struct{ client, secure, peer, admin, mode string }

func (l readyLine) print(w io.Writer) {
	secure := ""
	if l.secure != "" {
		secure = " secure=" + l.secure
	}
	// secure= is the last field: scripts find the others by their positions.
	fmt.Fprintf(w, "zlockd ready client=%s peer=%s admin=%s mode=%s version=%s%s\n", l.client, l.peer, l.admin,
		l.mode, release.Version(), secure)
}
