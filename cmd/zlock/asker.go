package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/internal/ticket"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
)

// ticketFlags say which ticket a command is about, and where it asks.
type ticketFlags struct {
	http, ca, bearer, file string
	timeout                time.Duration
}

func addTicketFlags(fs *pflag.FlagSet, one bool) *ticketFlags {
	t := addPortFlags(fs, one)
	call.AddDuration(fs, &t.timeout, "timeout", "", "give up when no server answers for so long")
	return t
}

// addPortFlags is addTicketFlags without --timeout.
func addPortFlags(fs *pflag.FlagSet, one bool) *ticketFlags {
	t := new(ticketFlags)
	fs.StringVar(&t.http, "http", "", "ask the ports for tickets at `URLS`, separated by commas (ZLOCK_HTTP, "+
		"http://127.0.0.1:8183)")
	fs.StringVar(&t.ca, "http-ca", "", "trust servers that this authority signed, PEM `FILE`")
	fs.StringVar(&t.bearer, "bearer-file", "", "the caller's bearer token is in `FILE` (or in ZLOCK_BEARER)")
	t.timeout = time.Minute
	if one {
		fs.StringVar(&t.file, "ticket-file", "",
			"the ticket is in `FILE`, - is standard input (or in ZLOCK_TICKET)")
	}
	return t
}

// asker asks about one ticket, or about all of a caller's.
type asker struct {
	*ticket.Caller
	path  string // of the ticket's lock
	fresh bool   // the ticket was made just now, and no file has it
}

// all returns what asks about all tickets.
func (t *ticketFlags) all(c *call.Call) (*asker, error) {
	bearer := c.Getenv("ZLOCK_BEARER")
	if t.bearer != "" {
		var err error
		if bearer, _, err = ticket.Read(t.bearer, ""); err != nil {
			return nil, err
		}
	}
	at := cmp.Or(t.http, c.Getenv("ZLOCK_HTTP"), "http://127.0.0.1:8183")
	k, err := ticket.NewCaller(at, bearer, "", t.ca)
	return &asker{Caller: k}, err
}

// one returns what asks about a ticket; create lets it make one for the path.
func (t *ticketFlags) one(c *call.Call, create bool) (*asker, error) {
	k, err := t.all(c)
	if err != nil {
		return nil, err
	}
	asked, made := strings.Join(c.Args, ""), ""
	if create {
		made = asked
	}
	switch text := c.Getenv("ZLOCK_TICKET"); {
	case t.file == "-":
		b, err := io.ReadAll(io.LimitReader(c.Stdin, 64<<10))
		if err != nil {
			return nil, err
		}
		k.Secret, k.path = ticket.Parse(string(b))
	case t.file != "":
		if k.Secret, k.path, err = ticket.Read(t.file, made); err != nil {
			return nil, err
		}
	case text != "":
		k.Secret, k.path = ticket.Parse(text)
	case create:
		k.Secret, k.path, k.fresh = ticket.NewSecret(), made, true
	}
	switch {
	case k.Secret == "":
		return nil, cli.Usagef("which ticket? Give --ticket-file, or ZLOCK_TICKET")
	case k.path == "" && asked == "":
		return nil, cli.Usagef("the ticket does not name its path: give PATH")
	case k.path != "" && asked != "" && k.path != asked:
		return nil, cli.Usagef("the ticket is of %s, not of %s", k.path, asked)
	}
	k.path = cmp.Or(k.path, asked)
	return k, nil
}

// asking ends at a signal, and when no server answers.
func (t *ticketFlags) asking(wait time.Duration) (context.Context, func()) {
	ctx, stop := call.Interruptible()
	ctx, cancel := context.WithTimeout(ctx, wait+t.timeout)
	return ctx, func() { cancel(); stop() }
}

// unanswered returns how zlock ends by a request that no server answered.
func unanswered(ctx context.Context, err error) error {
	return cmp.Or(call.Interrupted(ctx), error(&cli.ExitError{Code: call.ExitNoSession, Err: err}))
}

// lockPath is the path of a lock in a request.
func lockPath(path string) string { return "/v1/locks" + path }

// A request waits for a second at first, so that a caller soon learns whom it waits for, and then for as long
// as lies between two lines about that.
const (
	firstWait = time.Second
	laterWait = 10 * time.Second
)

// pace says how long each request of a command waits.
type pace struct {
	end   time.Time // of the command's patience; zero: never
	later bool      // the first request is out
}

// next returns how long the next request waits.
func (p *pace) next() time.Duration {
	wait := firstWait
	if p.later {
		wait = laterWait
	}
	p.later = true
	if !p.end.IsZero() {
		wait = min(wait, max(time.Until(p.end), 0))
	}
	return wait.Round(time.Millisecond)
}

// over reports whether the command waits no longer.
func (p *pace) over() bool { return !p.end.IsZero() && !time.Now().Before(p.end) }

// whoIsAhead says whom a ticket waits for, and its place.
func whoIsAhead(path string, a *ticket.Answer) string {
	holder, ahead := "", ""
	switch {
	case a.Behind == nil:
	case a.Position == 1:
		holder = aheadText(a.Behind)
	default:
		ahead = aheadText(a.Behind)
	}
	return call.WaitText(path, holder, ahead, a.Position, a.Of)
}

func aheadText(h *ticket.Holder) string {
	return strings.TrimSpace(h.User+" "+h.Host) + call.SinceWhy(h.Since, h.Reason)
}

// overOr returns the error that an answer tells of.
func overOr(a *ticket.Answer) error {
	if a.Over() {
		return &cli.ExitError{Code: call.ExitNo, Err: overText(a)}
	}
	return fmt.Errorf("%s: %s", a.Error, a.Text)
}

func overText(a *ticket.Answer) error {
	return fmt.Errorf("the ticket is over (%s): %s", a.Error, a.Text)
}
