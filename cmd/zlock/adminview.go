package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
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
	auth    connectFlags // its auth file, and the files of TLS with the admin port
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
	fs.StringVar(&f.auth.ca, "admin-ca", "",
		"`FILE` with the certificates that may sign the admin listener's, which then speaks TLS (ZLOCK_ADMIN_CA)")
	fs.StringVar(&f.auth.cert, "admin-cert", "", "`FILE` with the certificate to show to the admin listener")
	fs.StringVar(&f.auth.key, "admin-key", "", "`FILE` with its private key")
}

// withAdmin runs do with the admin port, until the command's time is over or a signal comes.
func (c *call) withAdmin(f *adminFlags, do func(context.Context, adminClient) error) error {
	if err := f.auth.readAuth(c.app); err != nil {
		return err
	}
	addr := f.addr
	if addr == "" {
		addr = c.getenv("ZLOCK_ADMIN")
	}
	if addr == "" {
		addr = "127.0.0.1:8181"
	}
	conf, err := (&connectFlags{ca: cmp.Or(f.auth.ca, c.getenv("ZLOCK_ADMIN_CA")), cert: f.auth.cert,
		key: f.auth.key, prefix: "admin-"}).tlsConfig()
	if err != nil {
		return err
	}
	if !strings.Contains(addr, "://") {
		scheme := "http://"
		if conf != nil {
			scheme = "https://"
		}
		addr = scheme + addr
	}
	a := adminClient{base: strings.TrimRight(addr, "/"), http: adminHTTP(conf)}
	for _, cr := range f.auth.credentials {
		if cr[0] == "digest" {
			a.authorization = cr[0] + " " + cr[1]
		}
	}
	ctx, stop := interruptible()
	defer stop()
	ctx, cancel := answerWithin(ctx, f.timeout)
	defer cancel()
	return do(ctx, a)
}

// ask reads one answer of the lock view.
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

// serverFlags let a command that reads locks ask the admin port instead of opening a session.
type serverFlags struct {
	*adminFlags
	on bool
}

func addServerFlags(fs *pflag.FlagSet) *serverFlags {
	f := &serverFlags{adminFlags: &adminFlags{}}
	fs.BoolVar(&f.on, "server", false, "let a zlockd tell, by its admin listener, rather than read node by node")
	f.addTo(fs)
	return f
}

// look reads locks by the admin port if the user wants that, else with a session; so too if no
// admin port answers.
func (c *call) look(f *serverFlags, conn *connectFlags, served func(context.Context, adminClient) error,
	read func(context.Context, *client.Client) error) error {
	if f.on {
		f.timeout = conn.timeout
		err := c.withAdmin(f.adminFlags, served)
		if !cli.HasCode(err, exitNoSession) {
			return asNo(err)
		}
		c.say("%v; reading node by node", err)
	}
	return c.withClient(conn, read)
}

// lockOf reads one lock.
func (a adminClient) lockOf(ctx context.Context, path string) (*recipe.Queue, error) {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	var q recipe.Queue
	return &q, a.ask(ctx, "/locks"+strings.Join(parts, "/"), nil, &q)
}

// eachLock calls f for every lock at or below a path.
func (a adminClient) eachLock(ctx context.Context, root string, f func(*answer.Lock)) error {
	q := url.Values{"prefix": {root}, "limit": {"1000"}}
	for {
		var list struct {
			Next      *int          `json:"next"`
			Locks     []answer.Lock `json:"locks"`
			Truncated string        `json:"truncated"`
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

// graph reads which parties wait for which.
func (a adminClient) graph(ctx context.Context, root string) (*recipe.Graph, error) {
	var g recipe.Graph
	if err := a.ask(ctx, "/wait-graph", url.Values{"prefix": {root}}, &g); err != nil {
		return nil, err
	}
	for _, e := range g.Edges {
		if min(e.From, e.To) < 0 || max(e.From, e.To) >= len(g.Parties) {
			return nil, fmt.Errorf("the answer of %s is not understood: a wait of a party that it does not list",
				a.base)
		}
	}
	return &g, nil
}
