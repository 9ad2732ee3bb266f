package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/internal/ticket"
)

// ticketFlags say which ticket a command is about, and where it asks.
type ticketFlags struct {
	http, ca, bearer, file string
	timeout                time.Duration
}

func addTicketFlags(fs *pflag.FlagSet, one bool) *ticketFlags {
	t := addPortFlags(fs, one)
	addDuration(fs, &t.timeout, "timeout", "", "give up when no server answers for so long")
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
func (t *ticketFlags) all(c *call) (*asker, error) {
	bearer := c.getenv("ZLOCK_BEARER")
	if t.bearer != "" {
		var err error
		if bearer, _, err = ticket.Read(t.bearer, ""); err != nil {
			return nil, err
		}
	}
	at := cmp.Or(t.http, c.getenv("ZLOCK_HTTP"), "http://127.0.0.1:8183")
	k, err := ticket.NewCaller(at, bearer, "", t.ca)
	return &asker{Caller: k}, err
}

// one returns what asks about a ticket; create lets it make one for the path.
func (t *ticketFlags) one(c *call, create bool) (*asker, error) {
	k, err := t.all(c)
	if err != nil {
		return nil, err
	}
	asked, made := strings.Join(c.Args, ""), ""
	if create {
		made = asked
	}
	switch text := c.getenv("ZLOCK_TICKET"); {
	case t.file == "-":
		b, err := io.ReadAll(io.LimitReader(c.stdin, 64<<10))
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
	ctx, stop := interruptible()
	ctx, cancel := context.WithTimeout(ctx, wait+t.timeout)
	return ctx, func() { cancel(); stop() }
}

// unanswered returns how zlock ends by a request that no server answered.
func unanswered(ctx context.Context, err error) error {
	return cmp.Or(interrupted(ctx), error(&cli.ExitError{Code: exitNoSession, Err: err}))
}

// lockPath is the path of a lock in a request.
func lockPath(path string) string { return "/v1/locks" + path }

func takeCommand() *command {
	return &command{
		Name: "take", Args: "PATH", Least: 1, Most: 1,
		Does: "take a lock, or a place in its queue, that outlives this command: a ticket",
		Help: `It needs a zlockd with a port for tickets (--http) and nothing else. Exit code: 0 held, 124
not held: the place in the queue stays. With --ticket-file the same command goes on with it, also
after it was killed. Without, it prints the ticket, a secret and its path, for 'zlock give'.
'held TOKEN', of permits with their numbers ('slot 2'), goes to standard error, and while it
waits who holds the lock, since when, why, and the ticket's place.`,
		Setup: func(fs *pflag.FlagSet) func(*call) error {
			var wait, ttl time.Duration
			addDuration(fs, &wait, "wait", "w", "wait for so long")
			try := fs.BoolP("try", "n", false, "do not queue: if the lock is held, leave nothing behind")
			addDuration(fs, &ttl, "ttl", "", "the ticket lives for so long after each request, else for 1m")
			until := fs.String("until", "", "it ends then, whatever renews it: `TIME`, as 18:00, FRI-18:00 or "+
				"2026-11-27T18:00:00Z")
			reason := fs.String("reason", "", "what others are shown")
			shared := fs.Bool("shared", false, "as one of several readers")
			semaphore := fs.Int("semaphore", 0, "PATH is a semaphore, with `N` permits if it has no "+
				"number yet; 0: only the stored number")
			permits := fs.Int("permits", 1, "take `K` of them")
			quiet := fs.BoolP("quiet", "q", false, "do not say who holds the lock")
			t := addTicketFlags(fs, true)
			return func(c *call) error {
				end, err := moment(*until, time.Now())
				if err != nil {
					return err
				}
				q := url.Values{"who": {whoIs()}}
				set := func(name, value string, given bool) {
					if given {
						q.Set(name, value)
					}
				}
				ofPermits := fs.Changed("semaphore")
				switch {
				case ofPermits && *shared:
					return cli.Usagef("--semaphore and --shared exclude each other")
				case fs.Changed("permits") && !ofPermits:
					return cli.Usagef("--permits needs --semaphore")
				}
				set("reason", *reason, *reason != "")
				set("until", end, end != "")
				set("ttl", ttl.String(), ttl != 0)
				set("mode", "shared", *shared)
				set("mode", "permit", ofPermits)
				set("permits", strconv.Itoa(*permits), ofPermits)
				set("limit", strconv.Itoa(*semaphore), ofPermits && *semaphore != 0)
				set("queue", "no", *try)
				return c.take(t, q, wait, *quiet)
			}
		},
	}
}

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

// pace is that of -n and -w.
func (f *lockFlags) pace() (p pace) {
	if f.nonblock || f.fs.Changed("timeout") {
		p.end = time.Now().Add(f.timeout)
	}
	return p
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

func (c *call) take(t *ticketFlags, q url.Values, wait time.Duration, quiet bool) error {
	k, err := t.one(c, true)
	if err != nil {
		return err
	}
	ctx, stop := t.asking(wait)
	defer stop()
	line, p := newStatusLine(c.app), pace{end: time.Now().Add(wait)}
	tell := func(a *ticket.Answer) {
		if !quiet {
			line.news(whoIsAhead(k.path, a))
		}
	}
	for {
		q.Set("wait", p.next().String())
		a, err := k.Ask(ctx, http.MethodPost, lockPath(k.path), q, nil)
		if err != nil || a.Held || a.Code >= http.StatusBadRequest {
			line.clear()
		}
		switch {
		case err != nil:
			c.withdraw(t, k)
			return unanswered(ctx, err)
		case a.Error == "held":
			return &cli.ExitError{Code: exitNotAcquired, Err: errors.New(k.heldBy(ctx))}
		case a.Over() && t.file != "" && t.file != "-":
			return cli.Exitf(exitNo, "%w; 'zlock give' removes %s, and the next take has another ticket",
				overText(a), t.file)
		case a.Code >= http.StatusBadRequest:
			return overOr(a)
		case !a.Held && !p.over():
			tell(a)
			continue
		}
		if err := c.print(k); err != nil {
			c.withdraw(t, k)
			return err
		}
		if a.Held {
			c.say("%s", heldText(a))
			return nil
		}
		tell(a)
		line.end()
		return cli.Exit(exitNotAcquired)
	}
}

// print prints a ticket that no file has. If that fails, only this process knows it.
func (c *call) print(k *asker) error {
	if !k.fresh {
		return nil
	}
	outliveReaders()
	_, err := fmt.Fprintln(c.stdout, ticket.Text(k.Secret, k.path))
	return err
}

// withdraw gives back a ticket that no file has and that its caller was not told: else it might hold the
// lock for hours, and its caller could not give it back. If no server confirms that, the caller is told it.
func (c *call) withdraw(t *ticketFlags, k *asker) {
	if !k.fresh {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(t.timeout, releaseTimeout))
	defer cancel()
	a, err := k.Ask(ctx, http.MethodDelete, lockPath(k.path), url.Values{}, nil)
	if err == nil && (a.Code == http.StatusNoContent || a.Over()) {
		return
	}
	c.say("no server confirms that the ticket is given back: if it was opened it lasts until its time is " +
		"over, or 'zlock give'")
	_ = c.print(k)
}

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
	return waitText(path, holder, ahead, a.Position, a.Of)
}

func aheadText(h *ticket.Holder) string {
	return strings.TrimSpace(h.User+" "+h.Host) + sinceWhy(h.Since, h.Reason)
}

// heldBy says who holds a lock that a try did not get. Ahead of the try there may have been a waiter.
func (k *asker) heldBy(ctx context.Context) string {
	anyone := *k.Caller
	anyone.Secret = "" // the try has left no ticket
	a, err := anyone.Ask(ctx, http.MethodGet, lockPath(k.path), nil, nil)
	if err != nil || len(a.Holders) == 0 {
		return k.path + " is held"
	}
	return k.path + " is held by " + aheadText(&a.Holders[0])
}

// heldText says that a ticket holds, with its token and the numbers of its permits.
func heldText(a *ticket.Answer) string {
	text := "held " + a.Token
	switch {
	case len(a.Slots) == 1:
		text += " slot " + strconv.Itoa(a.Slots[0])
	case len(a.Slots) > 1:
		text += " slots " + strings.Trim(fmt.Sprint(a.Slots), "[]")
	case a.NoSlots != "":
		text += " without a slot: " + a.NoSlots
	}
	return text
}

// overOr returns the error that an answer tells of.
func overOr(a *ticket.Answer) error {
	if a.Over() {
		return &cli.ExitError{Code: exitNo, Err: overText(a)}
	}
	return fmt.Errorf("%s: %s", a.Error, a.Text)
}

func overText(a *ticket.Answer) error {
	return fmt.Errorf("the ticket is over (%s): %s", a.Error, a.Text)
}

func ticketCommand(name, does, help string, do func(c *call, t *ticketFlags) error) *command {
	return &command{
		Name: name, Args: "[PATH]", Least: 0, Most: 1, Does: does, Help: help,
		Setup: func(fs *pflag.FlagSet) func(*call) error {
			t := addTicketFlags(fs, true)
			return func(c *call) error { return do(c, t) }
		},
	}
}

func renewCommand() *command {
	return ticketCommand("renew", "renew a ticket", `Exit code: 0 held, 124 queued, 1 if the ticket is over.`,
		func(c *call, t *ticketFlags) error {
			a, err := c.one(t, http.MethodPost, map[string]string{"If-Match": "*"})
			switch {
			case err != nil:
				return err
			case a.Code >= http.StatusBadRequest:
				return overOr(a)
			case !a.Held:
				return cli.Exit(exitNotAcquired)
			}
			return nil
		})
}

func giveCommand() *command {
	return ticketCommand("give", "give a ticket back, or leave its queue",
		`Exit code: 0 given back, 1 if the ticket was over for another reason: the work may have
overlapped. A ticket file is removed.`, func(c *call, t *ticketFlags) error {
			a, err := c.one(t, http.MethodDelete, nil)
			if err != nil {
				return err
			}
			given := a.Code == http.StatusNoContent || a.Error == "given"
			if (given || a.Over()) && t.file != "" && t.file != "-" {
				if err := os.Remove(t.file); err != nil {
					return err
				}
			}
			if given {
				return nil
			}
			return overOr(a)
		})
}

// one sends a request about a ticket.
func (c *call) one(t *ticketFlags, method string, head map[string]string) (*ticket.Answer, error) {
	k, err := t.one(c, false)
	if err != nil {
		return nil, err
	}
	ctx, stop := t.asking(0)
	defer stop()
	a, err := k.Ask(ctx, method, lockPath(k.path), url.Values{}, head)
	if err != nil {
		return nil, unanswered(ctx, err)
	}
	return a, nil
}

func ticketsCommand() *command {
	return &command{
		Name: "tickets", Least: 0, Most: 0, Does: "list this caller's tickets, without their secrets",
		Help: `With -o plain the columns are: path, state, token, since, until.`,
		Setup: func(fs *pflag.FlagSet) func(*call) error {
			format := addFormat(fs)
			t := addTicketFlags(fs, false)
			return func(c *call) error {
				k, err := t.all(c)
				if err != nil {
					return err
				}
				ctx, stop := t.asking(0)
				defer stop()
				a, err := k.Ask(ctx, http.MethodGet, "/v1/tickets", url.Values{}, nil)
				switch {
				case err != nil:
					return unanswered(ctx, err)
				case a.Code != http.StatusOK:
					return overOr(a)
				}
				p := c.printer(*format, "PATH", "STATE", "TOKEN", "SINCE", "UNTIL")
				for _, one := range a.Tickets {
					state := map[bool]string{true: "held", false: "queued"}[one.Held]
					until := ""
					if one.Until != 0 {
						until = stamp(time.UnixMilli(one.Until))
					}
					p.row(one, one.Path, state, one.Token, time.UnixMilli(one.Since), until)
				}
				return p.flush()
			}
		},
	}
}

// moment reads a time as people write it, the next one that it may mean, as RFC 3339.
func moment(text string, now time.Time) (string, error) {
	if text == "" {
		return "", nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC().Format(time.RFC3339), nil
	}
	day, clock, both := strings.Cut(text, "-")
	if !both {
		clock = day
	}
	at, err := time.ParseInLocation("15:04", clock, now.Location())
	if err != nil {
		return "", cli.Usagef("--until %q is no time: want 18:00, FRI-18:00 or 2026-11-27T18:00:00Z", text)
	}
	for ahead := range 8 {
		d := now.AddDate(0, 0, ahead)
		next := time.Date(d.Year(), d.Month(), d.Day(), at.Hour(), at.Minute(), 0, 0, now.Location())
		if next.After(now) && (!both || strings.EqualFold(next.Weekday().String()[:3], day)) {
			return next.UTC().Format(time.RFC3339), nil
		}
	}
	return "", cli.Usagef("--until %q names no day: want MON to SUN", text)
}

// whoIs says who asks.
func whoIs() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	who := name + "@" + host
	return who[:min(len(who), 200)]
}
