package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
)

// adminFlags are the options of commands that ask a zlockd's admin port.
type adminFlags struct {
	addr    string
	timeout time.Duration
	auth    connectFlags // for its auth file only
}

func addAdminFlags(fs *pflag.FlagSet, changes bool) *adminFlags {
	f := &adminFlags{timeout: answerTimeout}
	fs.StringVar(&f.addr, "admin-addr", "", "`HOST:PORT` of a server's admin listener (ZLOCK_ADMIN; default 127.0.0.1:8181)")
	addDuration(fs, &f.timeout, "timeout", "w", "give up after this time")
	if changes {
		fs.StringVar(&f.auth.authFile, "auth-file", "", "`FILE` with a line digest:super:PASSWORD")
	}
	return f
}

// admin returns what talks to the admin port, and a context that ends with the
// command's time or a signal.
func (c *call) admin(f *adminFlags) (context.Context, adminClient, func(), error) {
	if err := f.auth.readAuth(c.app); err != nil {
		return nil, adminClient{}, nil, err
	}
	addr := f.addr
	if addr == "" {
		addr = c.getenv("ZLOCK_ADMIN")
	}
	if addr == "" {
		addr = "127.0.0.1:8181"
	}
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	a := adminClient{base: strings.TrimRight(addr, "/")}
	for _, cr := range f.auth.credentials {
		if cr[0] == "digest" {
			a.authorization = cr[0] + " " + cr[1]
		}
	}
	ctx, stop := interruptible()
	ctx, cancel := answerWithin(ctx, f.timeout)
	return ctx, a, func() { cancel(); stop() }, nil
}

// ask reads one of the lock view's answers.
func (a adminClient) ask(ctx context.Context, path string, q url.Values, into any) error {
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	body, err := a.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the answer of %s is not understood: %w", a.base, err)
	}
	return nil
}

// serverFlags let a command that reads locks ask the admin port instead of
// opening a session.
type serverFlags struct {
	*adminFlags
	on bool
}

func addServerFlags(fs *pflag.FlagSet) *serverFlags {
	f := &serverFlags{adminFlags: &adminFlags{}}
	fs.BoolVar(&f.on, "server", false, "let a zlockd tell, by its admin listener, rather than read node by node")
	fs.StringVar(&f.addr, "admin-addr", "", "`HOST:PORT` of that listener (ZLOCK_ADMIN; default 127.0.0.1:8181)")
	return f
}

// asks runs f with the admin port, if that is wanted and there is one. It
// reports false if the command is to go on with a session.
func (f *serverFlags) asks(c *call, timeout time.Duration, do func(context.Context, adminClient) error) (done bool, err error) {
	if !f.on {
		return false, nil
	}
	f.timeout = timeout
	ctx, a, stop, err := c.admin(f.adminFlags)
	if err != nil {
		return true, err
	}
	defer stop()
	err = do(ctx, a)
	var e *exitError
	if errors.As(err, &e) && e.code == exitNoSession {
		c.say("%v; reading node by node", err)
		return false, nil
	}
	var no *refusal
	if errors.As(err, &no) {
		return true, exitf(exitNo, "%v", err)
	}
	return true, err
}

// viewContender is a contender as the lock view tells of it.
type viewContender struct {
	Node      string        `json:"node"`
	Position  int           `json:"position"`
	Mode      string        `json:"mode"`
	Maker     string        `json:"maker"`
	Session   string        `json:"session"`
	Token     string        `json:"token"`
	Since     int64         `json:"since"`
	HeldSince int64         `json:"heldSince"`
	BlockedBy []string      `json:"blockedBy"`
	Owner     *client.Owner `json:"owner"`
	Data      string        `json:"data"`
}

// viewLock is a lock.
type viewLock struct {
	Path        string          `json:"path"`
	Kind        string          `json:"kind"`
	Layouts     []string        `json:"layouts"`
	Mixed       bool            `json:"mixed"`
	Policy      string          `json:"policy"`
	Limit       int             `json:"limit"`
	Next        int32           `json:"nextSeq"`
	HolderCount int             `json:"holderCount"`
	WaiterCount int             `json:"waiterCount"`
	OldestWait  int64           `json:"oldestWait"`
	Holders     []viewContender `json:"holders"`
	Waiters     []viewContender `json:"waiters"`
	Others      []string        `json:"others"`
	Truncated   string          `json:"truncated"`
}

func (l *viewLock) layout() string { return strings.Join(l.Layouts, "+") }

// queue says the same in package client's words.
func (l *viewLock) queue() *client.Queue {
	q := &client.Queue{Path: l.Path, Kind: l.Kind, LayoutName: l.layout(), Policy: l.Policy, Limit: l.Limit, Foreign: l.Others, Mixed: l.Mixed, NextSeq: l.Next}
	for _, c := range l.Holders {
		q.Holders = append(q.Holders, c.entry())
	}
	for _, c := range l.Waiters {
		q.Waiters = append(q.Waiters, c.entry())
	}
	return q
}

var viewModes = map[string]fence.Mode{"exclusive": fence.Exclusive, "shared": fence.Shared, "permit": fence.Permit}

func (v *viewContender) entry() client.Entry {
	session, _ := strconv.ParseUint(v.Session, 0, 64)
	token, _ := strconv.ParseInt(v.Token, 10, 64)
	e := client.Entry{
		Node: v.Node, Mode: viewModes[v.Mode], Position: v.Position, Session: int64(session), Token: fence.Token(token), Maker: v.Maker,
		Owner: v.Owner, Raw: v.Data, WaitingSince: time.UnixMilli(v.Since),
	}
	if v.HeldSince != 0 {
		e.HeldSince = time.UnixMilli(v.HeldSince)
	}
	if len(v.BlockedBy) > 0 {
		e.BlockedBy = v.BlockedBy[len(v.BlockedBy)-1]
	}
	return e
}

// lockOf asks for one lock.
func (a adminClient) lockOf(ctx context.Context, path string) (*viewLock, error) {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	var l viewLock
	return &l, a.ask(ctx, "/locks"+strings.Join(parts, "/"), nil, &l)
}

// eachLock goes through all locks at or below a path.
func (a adminClient) eachLock(ctx context.Context, root string, f func(*viewLock)) error {
	q := url.Values{"prefix": {root}, "limit": {"1000"}}
	for {
		var list struct {
			Next      *int       `json:"next"`
			Locks     []viewLock `json:"locks"`
			Truncated string     `json:"truncated"`
		}
		if err := a.ask(ctx, "/locks", q, &list); err != nil {
			return err
		}
		for i := range list.Locks {
			f(&list.Locks[i])
		}
		if list.Next == nil {
			return nil
		}
		q.Set("offset", strconv.Itoa(*list.Next))
	}
}

// graph asks who waits for whom.
func (a adminClient) graph(ctx context.Context, root string) (*client.Graph, error) {
	var v struct {
		Parties []struct {
			Label   string `json:"label"`
			Task    string `json:"task"`
			Session string `json:"session"`
			Reason  string `json:"reason"`
		} `json:"parties"`
		Edges []struct {
			From     int    `json:"from"`
			To       int    `json:"to"`
			Path     string `json:"path"`
			FromNode string `json:"fromNode"`
			ToNode   string `json:"toNode"`
			Any      bool   `json:"any"`
			Watch    bool   `json:"watch"`
			Cycle    bool   `json:"cycle"`
		} `json:"edges"`
	}
	if err := a.ask(ctx, "/wait-graph", url.Values{"prefix": {root}}, &v); err != nil {
		return nil, err
	}
	party := func(i int) (p client.Party) {
		if i < 0 || i >= len(v.Parties) {
			return p
		}
		session, _ := strconv.ParseUint(v.Parties[i].Session, 0, 64)
		return client.Party{Task: v.Parties[i].Task, Session: int64(session), Label: strings.TrimSpace(v.Parties[i].Label + " " + v.Parties[i].Reason)}
	}
	g := &client.Graph{}
	for _, e := range v.Edges {
		from, to := party(e.From), party(e.To)
		g.Edges = append(g.Edges, client.Edge{
			From: from, To: to, Path: e.Path, FromNode: e.FromNode, ToNode: e.ToNode, Cycle: e.Cycle,
			Possible: from.Task == "" || to.Task == "" || e.Any || e.Watch,
		})
	}
	return g, nil
}
