package connect

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/view/answer"
)

// AdminFlags are the options of commands that talk to the admin listener of a zlockd.
type AdminFlags struct {
	addr    string
	Timeout time.Duration
	auth    Flags // only the file of identities and the TLS files are used
}

// AddAdminFlags adds the options of a command that uses the admin listener. `changes` says that the command
// changes something.
func AddAdminFlags(fs *pflag.FlagSet, changes bool) *AdminFlags {
	f := &AdminFlags{Timeout: AnswerTimeout}
	f.AddTo(fs)
	call.AddDuration(fs, &f.Timeout, "timeout", "w", "give up after this time")
	if changes {
		fs.StringVar(&f.auth.authFile, "auth-file", "", "`FILE` with a line digest:super:PASSWORD")
	}
	return f
}

// AddTo adds the address of the admin listener and the files of its TLS.
func (f *AdminFlags) AddTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.addr, "admin-addr", "",
		"`HOST:PORT` of a server's admin listener, or https://HOST:PORT (ZLOCK_ADMIN; default 127.0.0.1:8181)")
	fs.StringVar(&f.auth.CA, "admin-ca", "",
		"use TLS, and trust only the authorities in `FILE` to sign the admin listener's certificate "+
			"(ZLOCK_ADMIN_CA)")
	fs.StringVar(&f.auth.Cert, "admin-cert", "", "`FILE` with the certificate to show to the admin listener")
	fs.StringVar(&f.auth.Key, "admin-key", "", "`FILE` with the private key of --admin-cert")
}

// Client returns a client of the admin listener at an address.
func (f *AdminFlags) Client(c *call.Call, addr string) (Admin, error) {
	files := f.auth.TLSFiles
	files.CA, files.prefix = cmp.Or(files.CA, c.Getenv("ZLOCK_ADMIN_CA")), "admin-"
	conf, err := files.TLSConfig()
	if err != nil {
		return Admin{}, err
	}
	if !strings.Contains(addr, "://") {
		scheme := "http://"
		if conf != nil {
			scheme = "https://"
		}
		addr = scheme + addr
	}
	return Admin{base: strings.TrimRight(addr, "/"), http: adminHTTP(conf)}, nil
}

// Address returns the admin listener's address.
func (f *AdminFlags) Address(c *call.Call) string {
	return cmp.Or(f.addr, c.Getenv("ZLOCK_ADMIN"), "127.0.0.1:8181")
}

// WithAdmin calls do() with a client of the admin listener. The context of do() ends at a signal, or when the
// command's timeout is over.
func WithAdmin(c *call.Call, f *AdminFlags, do func(context.Context, Admin) error) error {
	if err := f.auth.readAuth(c.App); err != nil {
		return err
	}
	a, err := f.Client(c, f.Address(c))
	if err != nil {
		return err
	}
	said := map[string]bool{} // remarks that were shown: each part of a long list may bring the same one
	a.tell = func(what string) {
		if !said[what] {
			said[what] = true
			c.Say("the answer of %s %s", a.base, what)
		}
	}
	for _, cr := range f.auth.Credentials {
		if cr.Scheme == "digest" && !strings.HasPrefix(a.authorization, "digest super:") {
			a.authorization = cr.Scheme + " " + string(cr.Secret)
		}
	}
	ctx, stop := call.Interruptible()
	defer stop()
	ctx, cancel := AnswerWithin(ctx, f.Timeout)
	defer cancel()
	err = do(ctx, a)
	if err == nil || ctx.Err() == nil {
		return err
	}
	return cmp.Or(call.Interrupted(ctx), a.unreachable(context.DeadlineExceeded))
}

// adminHTTP returns an HTTP client that uses no proxy and follows no redirect: a request may carry the super
// user's password, and only the admin listener may see it.
func adminHTTP(conf *tls.Config) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: conf},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Ask reads one answer of the admin listener.
func (a Admin) Ask(ctx context.Context, path string, q url.Values, into any) error {
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	err := a.Do(ctx, http.MethodGet, path, nil, into)
	if errors.Is(err, errNotSuper) {
		a.authorization = "" // the user's identity is not the super user's: ask again as everyone may
		return a.Do(ctx, http.MethodGet, path, nil, into)
	}
	return err
}

// Admin talks to a server's admin listener.
type Admin struct {
	base          string
	http          *http.Client
	authorization string            // header, "" for none
	Token         string            // from the page of the lock view, needed for the actions of that page
	tell          func(what string) // shows the user a remark that comes with an answer
}

// Do sends a request and reads the answer, one JSON object.
func (a Admin) Do(ctx context.Context, method, path string, body, into any) error {
	reply, err := a.Open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer reply.Close()
	text, err := io.ReadAll(io.LimitReader(reply, 64<<20))
	if err != nil {
		return a.unreachable(err)
	}
	var part struct {
		Truncated string `json:"truncated"`
	}
	if err := errors.Join(json.Unmarshal(text, into), json.Unmarshal(text, &part)); err != nil {
		return a.Misread(err)
	}
	if part.Truncated != "" {
		a.tell("is incomplete: " + part.Truncated)
	}
	return nil
}

// Open sends a request. `body`, if not nil, is a file or an object in JSON. Open returns the server's reply,
// which the caller reads and closes.
func (a Admin) Open(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	var content io.Reader
	kind, size := "application/json", int64(0)
	switch b := body.(type) {
	case nil:
	case *os.File:
		info, err := b.Stat()
		if err != nil {
			return nil, err
		}
		content, kind, size = b, "application/octet-stream", info.Size()
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		content, size = bytes.NewReader(text), int64(len(text))
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, content)
	if err != nil {
		return nil, cli.Usagef("--admin-addr: %v", err)
	}
	req.ContentLength = size
	if body != nil {
		req.Header.Set("Content-Type", kind)
	}
	if a.authorization != "" {
		req.Header.Set("Authorization", a.authorization)
	}
	if a.Token != "" {
		req.Header.Set("X-Zlockd-Token", a.Token)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, a.unreachable(err)
	}
	if resp.StatusCode/100 == 2 {
		if why := resp.Header.Get(answer.Stale); why != "" {
			a.tell("may be old: " + why)
		}
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // ignore an error: what has arrived is enough
	return nil, refused(resp, text)
}

// Misread returns the error for an answer of the server that zlock cannot parse.
func (a Admin) Misread(err error) error {
	return fmt.Errorf("the answer of %s is not understood: %w", a.base, err)
}

// unreachable() explains a missing answer.
func (a Admin) unreachable(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("the time of --timeout has passed")
	}
	return cli.Exitf(call.ExitNoSession, "no answer from the admin listener at %s: %w",
		strings.TrimPrefix(a.base, "http://"), err)
}

var errNotSuper = errors.New("the user and password of --auth-file are not those of the servers' " +
	"--super-digest")

// refused() turns an answer without success into an error with exit code 1. The error contains nothing of the
// request, which may hold the password.
func refused(resp *http.Response, answer []byte) error {
	var cause error
	text := strings.TrimSpace(string(answer))
	var e status.Failure
	if json.Unmarshal(answer, &e) == nil && e.Text != "" {
		text = e.Text
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		text = "this needs the super user's password: give a line digest:super:PASSWORD in --auth-file"
	case resp.StatusCode == http.StatusForbidden && text == "Not authorized":
		cause = errNotSuper
	case text == "":
		text = resp.Status
	}
	return &cli.ExitError{Code: call.ExitNo, Err: status.With(e.Code, cmp.Or(cause, errors.New(text)))}
}

// Health reads the server's health report, whether the server is well or not.
func (a Admin) Health(ctx context.Context, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+"/health", nil)
	if err != nil {
		return err
	}
	resp, err := a.http.Do(req)
	if err != nil {
		if u, ok := err.(*url.Error); ok { //nolint:errorlint // the client returns only this type
			err = u.Err
		}
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(into); err != nil {
		return a.Misread(err)
	}
	return nil
}
