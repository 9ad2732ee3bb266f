package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/server/view/answer"
)

// adminFlags are the options of commands that ask the admin port of a zlockd.
type adminFlags struct {
	addr    string
	timeout time.Duration
	auth    connectFlags // the auth file, and how the admin port uses TLS
	server  bool         // of a command that reads locks: ask the admin port instead of opening a session
}

func addAdminFlags(fs *pflag.FlagSet, changes bool) *adminFlags {
	f := &adminFlags{timeout: answerTimeout}
	f.addTo(fs)
	addDuration(fs, &f.timeout, "timeout", "w", "give up after this time")
	if changes {
		fs.StringVar(&f.auth.authFile, "auth-file", "", "`FILE` with a line digest:super:PASSWORD")
	}
	return f
}

// addTo adds the address of the admin listener and the files of its TLS.
func (f *adminFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.addr, "admin-addr", "",
		"`HOST:PORT` of a server's admin listener, or https://HOST:PORT (ZLOCK_ADMIN; default 127.0.0.1:8181)")
	fs.StringVar(&f.auth.CA, "admin-ca", "",
		"`FILE` with the certificates that may sign the admin listener's, which then speaks TLS (ZLOCK_ADMIN_CA)")
	fs.StringVar(&f.auth.Cert, "admin-cert", "", "`FILE` with the certificate to show to the admin listener")
	fs.StringVar(&f.auth.Key, "admin-key", "", "`FILE` with its private key")
}

// client returns a client of the admin listener at an address.
func (f *adminFlags) client(c *call, addr string) (adminClient, error) {
	files := f.auth.tlsFiles
	files.CA, files.prefix = cmp.Or(files.CA, c.getenv("ZLOCK_ADMIN_CA")), "admin-"
	conf, err := files.tlsConfig()
	if err != nil {
		return adminClient{}, err
	}
	if !strings.Contains(addr, "://") {
		scheme := "http://"
		if conf != nil {
			scheme = "https://"
		}
		addr = scheme + addr
	}
	return adminClient{base: strings.TrimRight(addr, "/"), http: adminHTTP(conf)}, nil
}

// address returns the admin listener's address.
func (f *adminFlags) address(c *call) string {
	return cmp.Or(f.addr, c.getenv("ZLOCK_ADMIN"), "127.0.0.1:8181")
}

// withAdmin runs do with the admin port, until the command's time is over or a signal comes.
func (c *call) withAdmin(f *adminFlags, do func(context.Context, adminClient) error) error {
	if err := f.auth.readAuth(c.app); err != nil {
		return err
	}
	a, err := f.client(c, f.address(c))
	if err != nil {
		return err
	}
	said := ""
	a.cut = func(why string) {
		if why != said {
			said = why
			c.say("the answer of %s is not whole: %s", a.base, why)
		}
	}
	for _, cr := range f.auth.credentials {
		if cr.Scheme == "digest" && !strings.HasPrefix(a.authorization, "digest super:") {
			a.authorization = cr.Scheme + " " + string(cr.Secret)
		}
	}
	ctx, stop := interruptible()
	defer stop()
	ctx, cancel := answerWithin(ctx, f.timeout)
	defer cancel()
	err = do(ctx, a)
	if err == nil || ctx.Err() == nil {
		return err
	}
	return cmp.Or(interrupted(ctx), a.unreachable(context.DeadlineExceeded))
}

// adminHTTP returns a client that sends requests only to the admin listener, because a request
// may carry the super user's password. A proxy of the environment would see the password, and so
// would the target of a redirect.
func adminHTTP(conf *tls.Config) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: conf},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ask reads one answer of the admin listener.
func (a adminClient) ask(ctx context.Context, path string, q url.Values, into any) error {
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	err := a.do(ctx, http.MethodGet, path, nil, into)
	if errors.Is(err, errNotSuper) {
		a.authorization = "" // a user of nodes, who sees here what everyone does
		return a.do(ctx, http.MethodGet, path, nil, into)
	}
	return err
}

func addServerFlags(fs *pflag.FlagSet) *adminFlags {
	f := &adminFlags{}
	fs.BoolVar(&f.server, "server", false,
		"let a zlockd tell, by its admin listener, rather than read node by node")
	f.addTo(fs)
	return f
}

// reader reads locks: node by node in a session, or from the lock view of a zlockd.
type reader interface {
	Inspect(ctx context.Context, path string) (*recipe.Queue, error)
	WaitGraph(ctx context.Context, root string) (*recipe.Graph, error)
	// eachLock calls a function for each lock at or below root; unless deep, for those that are no
	// deeper than its children.
	eachLock(ctx context.Context, root string, deep bool, f func(*answer.Lock)) error
}

// look reads locks by the admin port if the user wants that, else with a session; so too if no
// admin port answers.
func (c *call) look(f *adminFlags, conn *connectFlags, read func(context.Context, reader) error) error {
	if f.server {
		_, chroot, err := conn.address(c.getenv)
		if err != nil {
			return err
		}
		f.timeout = conn.timeout
		err = c.withAdmin(f, func(ctx context.Context, a adminClient) error { return read(ctx, view{a, chroot}) })
		if !cli.HasCode(err, exitNoSession) {
			return err
		}
		if !conn.quiet {
			c.say("%v; reading node by node", err)
		}
	}
	return c.withClient(conn, func(ctx context.Context, cl *client.Client) error {
		return read(ctx, nodeByNode{cl.Inspector()})
	})
}

// nodeByNode is the reader of a session.
type nodeByNode struct{ *client.Inspector }

func (n nodeByNode) eachLock(ctx context.Context, root string, deep bool, f func(*answer.Lock)) error {
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

// view is the reader of the lock view. Paths of users are below the chroot, those of the server are whole.
type view struct {
	adminClient
	chroot string
}

// whole returns the server's path for a user's.
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
	err := v.ask(ctx, "/locks"+strings.Join(parts, "/"), nil, &q)
	q.Path = strings.TrimPrefix(q.Path, v.chroot)
	return &q, err
}

func (v view) eachLock(ctx context.Context, root string, deep bool, f func(*answer.Lock)) error {
	root = v.whole(root)
	_, err := rows(ctx, v.adminClient, "/locks", url.Values{"prefix": {root}}, math.MaxInt,
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
	if err := v.ask(ctx, "/wait-graph", url.Values{"prefix": {v.whole(root)}}, &g); err != nil {
		return nil, err
	}
	for i := range g.Edges {
		e := &g.Edges[i]
		if min(e.From, e.To) < 0 || max(e.From, e.To) >= len(g.Parties) {
			return nil, fmt.Errorf("the answer of %s is not understood: a wait of a party that it does not list",
				v.base)
		}
		e.Path = strings.TrimPrefix(e.Path, v.chroot)
	}
	return &g, nil
}
