// Package look has the commands that only show: locks with their holders and waiters, leaders, sessions, and
// the report of doctor. They read locks node by node, or from the lock view of a zlockd.
package look

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/server/view/answer"
)

// serverFlags are the flags of commands that read locks. With --server such a command asks the admin
// listener, and opens no session.
type serverFlags struct {
	connect.AdminFlags
	server bool
}

func addServerFlags(fs *pflag.FlagSet) *serverFlags {
	f := &serverFlags{}
	fs.BoolVar(&f.server, "server", false,
		"read the lock view of a zlockd, at its admin listener, instead of node by node")
	f.AddTo(fs)
	return f
}

// reader reads locks: node by node in a session, or from the lock view of a zlockd.
type reader interface {
	Inspect(ctx context.Context, path string) (*recipe.Queue, error)
	WaitGraph(ctx context.Context, root string) (*recipe.Graph, error)
	// eachLock calls f() for each lock at `root` or among its children. If `deep` is true, it calls f() for each
	// lock at or below `root`.
	eachLock(ctx context.Context, root string, deep bool, f func(*answer.Lock)) error
	// left() says what the last answer lacks. It returns "" if nothing is missing, or if it has said so before.
	left() string
}

// incomplete is a JSON object that follows an answer and says what the answer lacks.
type incomplete struct {
	Truncated string `json:"truncated"`
}

// tellLeft says what an answer lacks.
func tellLeft(c *call.Call, p *call.Printer, r reader) {
	text := r.left()
	if text == "" {
		return
	}
	c.Say("the answer is incomplete: %s", text)
	if p.Format == call.JSON {
		p.Row(incomplete{text})
	}
}

// look() reads locks through the admin listener if the user asks for that and the listener answers. Otherwise
// it reads locks with a session.
func look(c *call.Call, f *serverFlags, conn *connect.Flags, read func(context.Context, reader) error) error {
	if f.server {
		_, chroot, err := conn.Address(c.Getenv)
		if err != nil {
			return err
		}
		f.Timeout = conn.Timeout
		err = connect.WithAdmin(c, &f.AdminFlags, func(ctx context.Context, a connect.Admin) error {
			return read(ctx, view{a, chroot})
		})
		if !cli.HasCode(err, call.ExitNoSession) {
			return err
		}
		if !conn.Quiet {
			c.Say("%v; reading node by node", err)
		}
	}
	return connect.WithSession(c, conn, func(ctx context.Context, cl *client.Client) error {
		n := &nodeByNode{}
		n.Inspector = cl.Inspector().Passing(func(path string) { n.passed = append(n.passed, path) })
		return read(ctx, n)
	})
}

// nodeByNode reads locks node by node, in a session.
type nodeByNode struct {
	*client.Inspector
	passed []string // directories that are left out, because the user has no right to read them
}

func (n *nodeByNode) left() string {
	switch len(n.passed) {
	case 0:
		return ""
	case 1:
		return n.passed[0] + " may not be read; name an identity that may read it with --auth-file"
	}
	return fmt.Sprintf("%d directories may not be read, the first is %s; name an identity that may read "+
		"them with --auth-file", len(n.passed), n.passed[0])
}

func (n *nodeByNode) eachLock(ctx context.Context, root string, deep bool, f func(*answer.Lock)) error {
	n.passed = nil
	depth := 1
	if deep {
		depth = -1
	}
	return n.Walk(ctx, root, depth, func(q *recipe.Queue) error {
		f(&answer.Lock{Lock: q.Lock, HolderCount: len(q.Holders), WaiterCount: len(q.Waiters),
			OldestWait: q.OldestWait()})
		return nil
	})
}

// view reads locks from the lock view of a zlockd. The paths that the user names are below the chroot; those
// of the server begin at the root.
type view struct {
	connect.Admin
	chroot string
}

// whole() turns a user's path into the server's path.
func (v view) whole(path string) string {
	return cmp.Or(strings.TrimSuffix(v.chroot+"/"+strings.Trim(path, "/"), "/"), "/")
}

// Inspect reads one lock.
func (v view) Inspect(ctx context.Context, path string) (*recipe.Queue, error) {
	parts := strings.Split(v.whole(path), "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	var q recipe.Queue
	err := v.Ask(ctx, "/locks"+strings.Join(parts, "/"), nil, &q)
	q.Path = strings.TrimPrefix(q.Path, v.chroot)
	return &q, err
}

func (view) left() string { return "" }

func (v view) eachLock(ctx context.Context, root string, deep bool, f func(*answer.Lock)) error {
	root = v.whole(root)
	_, err := rows(ctx, v.Admin, "/locks", url.Values{"prefix": {root}}, math.MaxInt,
		func(_ json.RawMessage, l *answer.Lock) {
			below := strings.TrimPrefix(l.Path, strings.TrimSuffix(root, "/"))
			l.Path = strings.TrimPrefix(l.Path, v.chroot)
			if l.Path != "" && (deep || !strings.Contains(strings.TrimPrefix(below, "/"), "/")) {
				f(l)
			}
		})
	return err
}

// WaitGraph reads which parties wait for which.
func (v view) WaitGraph(ctx context.Context, root string) (*recipe.Graph, error) {
	var g recipe.Graph
	if err := v.Ask(ctx, "/wait-graph", url.Values{"prefix": {v.whole(root)}}, &g); err != nil {
		return nil, err
	}
	for i := range g.Edges {
		e := &g.Edges[i]
		if min(e.From, e.To) < 0 || max(e.From, e.To) >= len(g.Parties) {
			return nil, v.Misread(errors.New("it shows a wait of a party that it does not list"))
		}
		e.Path = strings.TrimPrefix(e.Path, v.chroot)
	}
	return &g, nil
}

// maxAsk bounds the rows in one answer of the lock view.
const maxAsk = 1000

// rows() reads a list of locks or sessions, part by part, until it has `limit` rows. It calls f with each
// row, and with the same row as raw JSON for -o json. `total` is the number of rows at the server.
func rows[T any](ctx context.Context, a connect.Admin, path string, q url.Values, limit int,
	f func(json.RawMessage, *T)) (total int, err error) {
	for at := 0; at < limit; {
		q.Set("offset", strconv.Itoa(at))
		q.Set("limit", strconv.Itoa(min(limit-at, maxAsk)))
		var list struct {
			Total    int               `json:"total"`
			Next     *int              `json:"next"`
			Locks    []json.RawMessage `json:"locks"`
			Sessions []json.RawMessage `json:"sessions"`
		}
		if err := a.Ask(ctx, path, q, &list); err != nil {
			return 0, err
		}
		part := append(list.Locks, list.Sessions...)
		for _, raw := range part {
			var row T
			if err := json.Unmarshal(raw, &row); err != nil {
				return 0, a.Misread(err)
			}
			f(raw, &row)
		}
		at, total = at+len(part), list.Total
		if len(part) == 0 || list.Next == nil {
			break
		}
	}
	return total, nil
}
