package ticket

import (
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
)

// Renew is zlock renew.
func Renew() *call.Command {
	return ticketCommand("renew", "renew a ticket", `Exit code: 0 held, 124 queued, 1 if the ticket is over.`,
		func(c *call.Call, t *Flags) error {
			a, err := askOnce(c, t, http.MethodPost, map[string]string{"If-Match": "*"})
			switch {
			case err != nil:
				return err
			case a.Code >= http.StatusBadRequest:
				return OverOr(a)
			case !a.Held:
				return cli.Exit(call.ExitNotAcquired)
			}
			return nil
		})
}

// Give is zlock give.
func Give() *call.Command {
	return ticketCommand("give", "give a ticket back, or leave its queue",
		`Removes the ticket file. Exit code: 0 given back, 1 if the ticket had ended for another reason:
then the work may have overlapped with another holder's.`, func(c *call.Call, t *Flags) error {
			a, err := askOnce(c, t, http.MethodDelete, nil)
			if err != nil {
				return err
			}
			given := a.Code == http.StatusNoContent || a.Error == "given"
			if (given || a.Over()) && t.File != "" && t.File != "-" {
				if err := os.Remove(t.File); err != nil {
					return err
				}
			}
			if given {
				return nil
			}
			return OverOr(a)
		})
}

func ticketCommand(name, does, help string, do func(c *call.Call, t *Flags) error) *call.Command {
	return &call.Command{
		Name: name, Args: "[PATH]", Least: 0, Most: 1, Does: does, Help: help,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			t := addTicketFlags(fs, true)
			return func(c *call.Call) error { return do(c, t) }
		},
	}
}

// askOnce sends a single request about a ticket, and returns the answer.
func askOnce(c *call.Call, t *Flags, method string, head map[string]string) (*Answer, error) {
	k, err := t.One(c, false)
	if err != nil {
		return nil, err
	}
	ctx, stop := t.asking()
	defer stop()
	a, err := k.Ask(ctx, method, LockPath(k.Path), url.Values{}, head)
	if err != nil {
		return nil, unanswered(ctx, err)
	}
	return a, nil
}

// List is zlock tickets.
func List() *call.Command {
	return &call.Command{
		Name: "tickets", Least: 0, Most: 0, Does: "list this caller's tickets, without their secrets",
		Help: `With -o plain the columns are: path, state, token, since, until.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			format := call.AddFormat(fs)
			t := addTicketFlags(fs, false)
			return func(c *call.Call) error {
				k, err := t.All(c)
				if err != nil {
					return err
				}
				ctx, stop := t.asking()
				defer stop()
				a, err := k.Ask(ctx, http.MethodGet, "/v1/tickets", url.Values{}, nil)
				switch {
				case err != nil:
					return unanswered(ctx, err)
				case a.Code != http.StatusOK:
					return OverOr(a)
				}
				p := c.Printer(*format, "PATH", "STATE", "TOKEN", "SINCE", "UNTIL")
				for _, one := range a.Tickets {
					state := map[bool]string{true: "held", false: "queued"}[one.Held]
					until := ""
					if one.Until != 0 {
						until = call.Stamp(time.UnixMilli(one.Until))
					}
					p.Row(one, one.Path, state, one.Token, time.UnixMilli(one.Since), until)
				}
				return p.Flush()
			}
		},
	}
}
