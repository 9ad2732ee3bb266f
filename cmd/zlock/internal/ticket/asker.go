package ticket

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
)

// Flags say which ticket a command is about, and at which servers.
type Flags struct {
	http, ca, bearer, File string
	Timeout                time.Duration
}

func addTicketFlags(fs *pflag.FlagSet, one bool) *Flags {
	t := AddPortFlags(fs, one)
	call.AddDuration(fs, &t.Timeout, "timeout", "", "give up when no server answers for this long")
	return t
}

// AddPortFlags adds the flags for the servers. If `one` is true, it also adds the flags for a single ticket.
func AddPortFlags(fs *pflag.FlagSet, one bool) *Flags {
	t := new(Flags)
	fs.StringVar(&t.http, "http", "", "ask the ports for tickets at `URLS`, separated by commas (ZLOCK_HTTP, "+
		"http://127.0.0.1:8183)")
	fs.StringVar(&t.ca, "http-ca", "", "trust servers whose certificates the authority in `FILE` (PEM) "+
		"signed")
	fs.StringVar(&t.bearer, "bearer-file", "", "the caller's bearer token is in `FILE` (or in ZLOCK_BEARER)")
	t.Timeout = time.Minute
	if one {
		fs.StringVar(&t.File, "ticket-file", "",
			"the ticket is in `FILE`, - is standard input (or in ZLOCK_TICKET)")
	}
	return t
}

// Asker sends requests about one ticket, or about all tickets of a caller.
type Asker struct {
	*Caller
	Path  string // path of the ticket's lock
	fresh bool   // the ticket is new, and its secret is in no file yet
}

// All returns an Asker for all tickets.
func (t *Flags) All(c *call.Call) (*Asker, error) {
	bearer := c.Getenv("ZLOCK_BEARER")
	if t.bearer != "" {
		var err error
		if bearer, _, err = Read(t.bearer, ""); err != nil {
			return nil, err
		}
	}
	at := cmp.Or(t.http, c.Getenv("ZLOCK_HTTP"), "http://127.0.0.1:8183")
	k, err := NewCaller(at, bearer, "", t.ca)
	return &Asker{Caller: k}, err
}

// One returns an Asker for the ticket that the command line names. If `create` is true and there is no such
// ticket, One may make up one for the path.
func (t *Flags) One(c *call.Call, create bool) (*Asker, error) {
	k, err := t.All(c)
	if err != nil {
		return nil, err
	}
	asked, made := strings.Join(c.Args, ""), ""
	if create {
		made = asked
	}
	switch text := c.Getenv("ZLOCK_TICKET"); {
	case t.File == "-":
		b, err := io.ReadAll(io.LimitReader(c.Stdin, 64<<10))
		if err != nil {
			return nil, err
		}
		k.Secret, k.Path = Parse(string(b))
	case t.File != "":
		if k.Secret, k.Path, err = Read(t.File, made); err != nil {
			return nil, err
		}
	case text != "":
		k.Secret, k.Path = Parse(text)
	case create:
		k.Secret, k.Path, k.fresh = NewSecret(), made, true
	}
	switch {
	case k.Secret == "":
		return nil, cli.Usagef("the ticket is missing: give --ticket-file or ZLOCK_TICKET")
	case k.Path == "" && asked == "":
		return nil, cli.Usagef("the ticket does not name its path: give PATH")
	case k.Path != "" && asked != "" && k.Path != asked:
		return nil, cli.Usagef("the ticket belongs to %s, not to %s", k.Path, asked)
	}
	k.Path = cmp.Or(k.Path, asked)
	return k, nil
}

// asking() returns a context for one request. The context ends at a signal, or after the time t.Timeout.
func (t *Flags) asking() (context.Context, func()) {
	ctx, stop := call.Interruptible()
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	return ctx, func() { cancel(); stop() }
}

// unanswered() returns the error for a request that got no answer from any server.
func unanswered(ctx context.Context, err error) error {
	return cmp.Or(call.Interrupted(ctx), error(&cli.ExitError{Code: call.ExitNoSession, Err: err}))
}

// LockPath is the path of a lock in a request.
func LockPath(path string) string { return "/v1/locks" + path }

// How long a request waits at the server for the lock. The first waits only a second, so that the user soon
// learns who holds the lock. Later ones wait as long as the pause between two lines about that.
const (
	firstWait = time.Second
	laterWait = 10 * time.Second
)

// Patience says how long a command waits for a lock or a draw.
type Patience struct {
	End    time.Time     // zero: the wait never ends
	Answer time.Duration // how long an answer may take after the wait that the request asks for
	Quiet  bool          // do not report what the caller waits for
}

// Await sends one request after another, until an answer is final or the patience is over. It returns the
// last answer. Each request may wait at the server for a time that send() gets. why() says what an answer
// waits for; if the answer is final, it returns "".
func (p Patience) Await(ctx context.Context, c *call.Call,
	send func(ctx context.Context, wait time.Duration) (*Answer, error), why func(*Answer) string) (
	*Answer, error) {
	line := call.NewStatusLine(c.App)
	defer line.Clear()
	for wait := firstWait; ; wait = laterWait {
		if !p.End.IsZero() {
			wait = min(wait, max(time.Until(p.End), 0))
		}
		asking, cancel := context.WithTimeout(ctx, wait+p.Answer)
		a, err := send(asking, wait.Round(time.Millisecond))
		cancel()
		if err != nil {
			return nil, err
		}
		text := why(a)
		if text == "" {
			return a, nil
		}
		if !p.Quiet {
			line.News(text)
		}
		if !p.End.IsZero() && !time.Now().Before(p.End) {
			line.End()
			return a, nil
		}
	}
}

// WaitsFor says what a ticket waits for: who holds the lock, and how many are ahead. It returns "" if the
// ticket holds the lock, or if the request was refused.
func (k *Asker) WaitsFor(a *Answer) string {
	holder, ahead := "", ""
	switch {
	case a.Held || a.Code >= http.StatusBadRequest:
		return ""
	case a.Behind == nil:
	case a.Position == 1:
		holder = aheadText(a.Behind)
	default:
		ahead = aheadText(a.Behind)
	}
	return call.WaitText(k.Path, holder, ahead, a.Position, a.Of)
}

func aheadText(h *Holder) string {
	return strings.TrimSpace(h.User+" "+h.Host) + call.SinceWhy(h.Since, h.Reason)
}

// OverOr turns an answer that is a refusal into an error. The exit code is 1 if the ticket is over.
func OverOr(a *Answer) error {
	if a.Over() {
		return &cli.ExitError{Code: call.ExitNo, Err: OverText(a)}
	}
	return fmt.Errorf("%s: %s", a.Error, a.Text)
}

// OverText returns the error for an ended ticket, with the reason.
func OverText(a *Answer) error {
	return fmt.Errorf("the ticket is over (%s): %s", a.Error, a.Text)
}
