package ticket

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
)

// Take is zlock take.
func Take() *call.Command {
	return &call.Command{
		Name: "take", Args: "PATH", Least: 1, Most: 1,
		Does: "take a lock, or a place in its queue, that outlives this command: a ticket",
		Help: `Needs only a zlockd with a port for tickets (--http). Exit code: 0 held, 124 not held: the
place in the queue stays. With --ticket-file the same command continues with the ticket,
even after it was killed. Without --ticket-file it prints the ticket, a secret and its path,
for 'zlock give'. It writes 'held TOKEN' to standard error, for permits with their numbers
('slot 2'). While it waits it writes who holds the lock, since when and why, and the place
of the ticket.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			var wait, ttl time.Duration
			call.AddDuration(fs, &wait, "wait", "w", "wait this long")
			try := fs.BoolP("try", "n", false, "do not queue: if the lock is held, leave nothing behind")
			call.AddDuration(fs, &ttl, "ttl", "",
				"the ticket lives this long after each request, 1m if not given")
			until := fs.String("until", "", "the ticket ends at `TIME` at the latest, such as 18:00, "+
				"FRI-18:00 or 2026-11-27T18:00:00Z")
			reason := fs.String("reason", "", "`TEXT` that other clients see")
			shared := fs.Bool("shared", false, "take the lock as one of several readers")
			semaphore := fs.Int("semaphore", 0, "PATH is a semaphore; store `N` as its number of "+
				"permits if none is stored yet; 0: use the stored number")
			permits := fs.Int("permits", 1, "take `K` permits of the semaphore")
			quiet := fs.BoolP("quiet", "q", false, "do not say who holds the lock")
			t := addTicketFlags(fs, true)
			return func(c *call.Call) error {
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
				return takeTicket(c, t, q, wait, *quiet)
			}
		},
	}
}

func takeTicket(c *call.Call, t *Flags, q url.Values, wait time.Duration, quiet bool) error {
	k, err := t.One(c, true)
	if err != nil {
		return err
	}
	ctx, stop := call.Interruptible()
	defer stop()
	p := Patience{End: time.Now().Add(wait), Answer: t.Timeout, Quiet: quiet}
	a, err := p.Await(ctx, c, func(ctx context.Context, wait time.Duration) (*Answer, error) {
		q.Set("wait", wait.String())
		return k.Ask(ctx, http.MethodPost, LockPath(k.Path), q, nil)
	}, k.WaitsFor)
	switch {
	case err != nil:
		withdraw(c, t, k)
		return unanswered(ctx, err)
	case a.Error == "held":
		return &cli.ExitError{Code: call.ExitNotAcquired, Err: errors.New(k.heldBy(ctx, t.Timeout))}
	case a.Over() && t.File != "" && t.File != "-":
		return cli.Exitf(call.ExitNo, "%w; 'zlock give' removes %s, and the next take gets a new ticket",
			OverText(a), t.File)
	case a.Code >= http.StatusBadRequest:
		return OverOr(a)
	}
	if err := printTicket(c, k); err != nil {
		withdraw(c, t, k)
		return err
	}
	if !a.Held {
		return cli.Exit(call.ExitNotAcquired)
	}
	c.Say("%s", heldText(a))
	return nil
}

// printTicket prints a new ticket whose secret is in no file. If that fails, no other process knows the
// secret.
func printTicket(c *call.Call, k *Asker) error {
	if !k.fresh {
		return nil
	}
	call.OutliveReaders()
	_, err := fmt.Fprintln(c.Stdout, Text(k.Secret, k.Path))
	return err
}

// giveTimeout bounds the wait until a server confirms the end of a ticket.
const giveTimeout = 5 * time.Second

// giveBack gives the ticket back, within the time `most`. It reports whether a server confirms that the
// ticket has ended. A signal does not interrupt it.
func (c *Caller) giveBack(path string, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), min(most, giveTimeout))
	defer cancel()
	a, err := c.Ask(ctx, http.MethodDelete, LockPath(path), url.Values{}, nil)
	return err == nil && (a.Code == http.StatusNoContent || a.Over())
}

// withdraw() gives back a new ticket whose secret is in no file and was not printed. The user could not give
// it back, and it might hold the lock for hours. If no server confirms that, withdraw() prints the ticket
// after all.
func withdraw(c *call.Call, t *Flags, k *Asker) {
	if !k.fresh {
		return
	}
	if k.giveBack(k.Path, t.Timeout) {
		return
	}
	c.Say("no server confirms the end of the ticket: if it exists, it lasts until its time is over, or " +
		"until 'zlock give'")
	_ = printTicket(c, k)
}

// heldBy says, after zlock could not take a lock at once, who holds it. It names no holder if the lock is
// free and another contender only waits before this one.
func (k *Asker) heldBy(ctx context.Context, most time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	anyone := *k.Caller
	anyone.Secret = "" // ask as a caller without a ticket: the refused request left none
	a, err := anyone.Ask(ctx, http.MethodGet, LockPath(k.Path), nil, nil)
	if err != nil || len(a.Holders) == 0 {
		return k.Path + " is held"
	}
	return k.Path + " is held by " + aheadText(&a.Holders[0])
}

// heldText is the message for a ticket that holds, with its token and the numbers of its permits.
func heldText(a *Answer) string {
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

// moment() returns the time that `text` means, in RFC 3339. A clock time, with or without a weekday, means
// the next such time. `text` may also be in RFC 3339.
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
		return "", cli.Usagef("--until %q is not a time: want 18:00, FRI-18:00 or 2026-11-27T18:00:00Z", text)
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

// whoIs returns the name of the user, for other users who wait for the lock.
func whoIs() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return shown(name + "@" + host)
}

// shown() makes a text acceptable to a server: at most 200 bytes, of characters that can be shown.
func shown(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	end := min(len(text), 200)
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
