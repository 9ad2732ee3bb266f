// Package ticket has the commands for tickets: locks without a process, for scripts, people and coding
// agents. It requests them from a server over HTTP, as docs/tickets.md specifies.
package ticket

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Answer is a server's answer about a ticket, or about all tickets of a caller.
type Answer struct {
	Code     int      `json:"-"`
	V        int      `json:"v"`
	Held     bool     `json:"held"`
	Token    string   `json:"token"`
	Sequence string   `json:"sequencer"`
	Slots    []int    `json:"slots"`
	NoSlots  string   `json:"noSlots"`
	Position int      `json:"position"`
	Of       int      `json:"of"`
	TTL      int64    `json:"ttlMs"`
	Safe     int64    `json:"safeMs"`
	Asked    *Asked   `json:"asked"`
	Behind   *Holder  `json:"behind"`
	Holders  []Holder `json:"holders"`
	Error    string   `json:"error"`
	Text     string   `json:"text"`
	Drawn    bool     `json:"drawn"`
	Retry    int64    `json:"retryMs"`
	Tickets  []One    `json:"tickets"`
}

// Holder is the holder of a lock or, in an answer about a waiting ticket, the contender before it.
type Holder struct {
	Host   string `json:"host,omitempty"`
	User   string `json:"user,omitempty"`
	Reason string `json:"reason,omitempty"`
	Since  int64  `json:"since"`
}

// Asked names the client that asks for a lock, and its reason.
type Asked struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// One is one ticket of a list.
type One struct {
	Path  string `json:"path"`
	Held  bool   `json:"held"`
	Token string `json:"token,omitempty"`
	Slots []int  `json:"slots,omitempty"`
	Since int64  `json:"since"`
	TTL   int64  `json:"ttlMs"`
	Until int64  `json:"until,omitempty"`
}

// Over reports whether the ticket has ended.
func (a *Answer) Over() bool { return a.Code == http.StatusNotFound || a.Code == http.StatusGone }

// final() reports whether the answer is final. If it is not, the same request may succeed later, or at
// another server.
func (a *Answer) final() bool {
	return a.Code < http.StatusInternalServerError && (a.Code != http.StatusTooManyRequests || a.NoDraw())
}

// NoDraw reports whether a rate has no free draw.
func (a *Answer) NoDraw() bool { return a.Error == "rate" }

// Caller sends a request to one server after another, until one of them answers it.
type Caller struct {
	URLs   []string
	Bearer string // token; empty: none
	Secret string // secret of the ticket; empty: there is none
	HTTP   *http.Client

	first int // index of the server to ask first: the one that answered last
}

// NewCaller returns a Caller for the servers in `urls`, which are separated by commas. `ca` is a file with
// the authority of their certificates. If `ca` is empty, the system's authorities count.
func NewCaller(urls, bearer, secret, ca string) (*Caller, error) {
	c := &Caller{URLs: strings.Split(urls, ","), Bearer: bearer, Secret: secret, HTTP: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	for _, u := range c.URLs {
		at, err := url.Parse(u)
		if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
			return nil, fmt.Errorf("%q is not an address: want http://HOST:PORT or https://HOST:PORT", u)
		}
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", ca)
		}
		c.HTTP.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	}
	return c, nil
}

const (
	answerTime = 15 * time.Second // how long an answer may take after the wait that the request asks for
	again      = 200 * time.Millisecond
)

// Ask sends a request until a server answers it, or ctx ends. If a server fails, it asks the next one, except
// when the answer is final. Each server may take only its share of the time that ctx leaves, so that a server
// that hangs leaves time for the others.
func (c *Caller) Ask(ctx context.Context, method, path string, query url.Values, head map[string]string) (
	*Answer, error) {
	wait, _ := time.ParseDuration(query.Get("wait"))
	query = maps.Clone(query)
	began := time.Now()
	var last error
	for n := 0; ; n++ {
		rest := max(wait-time.Since(began), 0) // what is left of the wait after the servers that failed
		if wait > 0 {
			query.Set("wait", rest.Round(time.Millisecond).String())
		}
		at := (c.first + n) % len(c.URLs)
		most := answerTime
		if end, limited := ctx.Deadline(); limited {
			left := len(c.URLs) - n%len(c.URLs) // how many servers share the time: all not yet asked in this round
			most = min(most, max((time.Until(end)-rest)/time.Duration(left), again))
		}
		a, err := c.once(ctx, c.URLs[at], method, path, query, head, rest+most)
		if err == nil && a.final() {
			c.first = at
			return a, nil
		}
		if err == nil {
			err = errors.New(a.Text)
		}
		if last == nil || ctx.Err() == nil { // if ctx has ended, the error of an earlier server says more
			last = err
		}
		pause := again
		if n+1 < len(c.URLs) {
			pause = 0
		}
		select {
		case <-ctx.Done():
			return nil, last
		case <-time.After(pause):
		}
	}
}

func (c *Caller) once(ctx context.Context, at, method, path string, query url.Values, head map[string]string,
	most time.Duration) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	to := strings.TrimSuffix(at, "/") + (&url.URL{Path: path}).EscapedPath() + "?" + query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, to, nil)
	if err != nil {
		return nil, err
	}
	if c.Secret != "" {
		r.Header.Set("Zlock-Ticket", c.Secret)
	}
	if c.Bearer != "" {
		r.Header.Set("Authorization", "Bearer "+c.Bearer)
	}
	for name, value := range head {
		r.Header.Set(name, value)
	}
	resp, err := c.HTTP.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &Answer{Code: resp.StatusCode}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	// Any other body comes from another program, such as a proxy, and says nothing about the ticket.
	given := method == http.MethodDelete && a.Code == http.StatusNoContent
	if !given && (json.Unmarshal(b, a) != nil || a.V != 1) {
		return nil, fmt.Errorf("%s answers with status %d and is not a port for tickets", at, resp.StatusCode)
	}
	return a, nil
}
