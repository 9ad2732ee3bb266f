package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

func memberCommand() *command {
	return &command{
		name: "member", args: "list, add ID PEER-ADDR, promote ID, or remove ID",
		subs: []string{"list", "add", "promote", "remove"},
		does: "show and change the members of a zlockd ensemble",
		help: `Talks to the admin address of a server, any one of the ensemble. A member that is
added follows without a vote until it is promoted, for which promote waits until it
has caught up. Changes need the password of the servers' --super-digest in
--auth-file. Exit code: 0, 1 if the servers refuse, 120 if none answers.`,
		setup: func(fs *pflag.FlagSet) func(*call) error {
			m := &memberFlags{timeout: 30 * time.Second}
			fs.StringVar(&m.admin, "admin-addr", "", "`HOST:PORT` of a server's admin listener (ZLOCK_ADMIN; default 127.0.0.1:8181)")
			fs.StringVar(&m.auth.authFile, "auth-file", "", "`FILE` with a line digest:super:PASSWORD; needed for changes")
			addDuration(fs, &m.timeout, "timeout", "w", "give up after this time")
			format := addFormat(fs)
			return func(c *call) error { return c.member(m, *format) }
		},
	}
}

type memberFlags struct {
	admin   string
	timeout time.Duration
	auth    connectFlags // for its auth file only
}

func (c *call) member(m *memberFlags, format string) error {
	if m.admin == "" {
		m.admin = c.getenv("ZLOCK_ADMIN")
	}
	if m.admin == "" {
		m.admin = "127.0.0.1:8181"
	}
	if !strings.Contains(m.admin, "://") {
		m.admin = "http://" + m.admin
	}
	if len(c.args) == 0 {
		return usagef("say list, add, promote or remove")
	}
	ctx, stop := interruptible()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	if err := m.auth.readAuth(c.app); err != nil {
		return err
	}
	admin := adminClient{base: strings.TrimRight(m.admin, "/")}
	for _, cr := range m.auth.credentials {
		if cr[0] == "digest" {
			admin.authorization = cr[0] + " " + cr[1]
		}
	}
	op, args := c.args[0], c.args[1:]
	want := map[string]int{"list": 0, "add": 2, "promote": 1, "remove": 1}
	n, ok := want[op]
	switch {
	case !ok:
		return usagef("%q is none of list, add, promote, remove", op)
	case len(args) != n:
		return usagef("member %s takes %d operands", op, n)
	}
	if op == "list" {
		return c.listMembers(ctx, admin, format)
	}
	id, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil || id == 0 {
		return usagef("the ID of a member is a positive number")
	}
	change := memberChange{Op: op, ID: uint32(id)}
	if op == "add" {
		change.Addr = args[1]
	}
	err = admin.change(ctx, change)
	var refused *refusal
	if errors.As(err, &refused) {
		return exitf(exitNo, "%v", err)
	}
	return err
}

func (c *call) listMembers(ctx context.Context, admin adminClient, format string) error {
	members, err := admin.members(ctx)
	if err != nil {
		return err
	}
	if len(members) == 0 {
		c.say("the server runs alone, or has not joined its cluster yet")
	}
	p := c.printer(format, "ID", "PEER-ADDR", "CLIENT-ADDR", "ROLE")
	for _, m := range members {
		p.row(m, strconv.Itoa(m.ID), m.Peer, m.Client, m.Role)
	}
	return p.flush()
}

// adminClient talks to a server's admin listener.
type adminClient struct {
	base          string
	authorization string // header, "" for none
}

// memberChange is the body of POST /members.
type memberChange struct {
	Op   string `json:"op"` // add, promote or remove
	ID   uint32 `json:"id"`
	Addr string `json:"addr,omitempty"`
}

// memberInfo is one member.
type memberInfo struct {
	ID     int    `json:"id"`
	Peer   string `json:"peer"`
	Client string `json:"client,omitempty"`
	Role   string `json:"role"` // leader, voter or non-voter
}

// refusal is the servers' no.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// members reads the ensemble from GET /members.
func (a adminClient) members(ctx context.Context) ([]memberInfo, error) {
	body, err := a.do(ctx, http.MethodGet, "/members", nil)
	if err != nil {
		return nil, err
	}
	var view struct {
		Leader  int `json:"leader"`
		Members map[int]struct {
			Peer   string `json:"peer"`
			Client string `json:"client"`
			Voter  bool   `json:"voter"`
		} `json:"members"`
	}
	if err := json.Unmarshal(body, &view); err != nil {
		return nil, fmt.Errorf("the answer of %s is not understood: %w", a.base, err)
	}
	var members []memberInfo
	for id, m := range view.Members {
		role := "non-voter"
		switch {
		case id == view.Leader:
			role = "leader"
		case m.Voter:
			role = "voter"
		}
		members = append(members, memberInfo{id, m.Peer, m.Client, role})
	}
	slices.SortFunc(members, func(x, y memberInfo) int { return x.ID - y.ID })
	return members, nil
}

// promotePoll is how often a server that has not caught up is tried again.
const promotePoll = 200 * time.Millisecond

// change asks for a change and waits until it is done. A server that was added
// a moment ago is given the time to catch up before it gets its vote.
func (a adminClient) change(ctx context.Context, ch memberChange) error {
	body, err := json.Marshal(ch)
	if err != nil {
		return err
	}
	for {
		_, err := a.do(ctx, http.MethodPost, "/members", body)
		var no *refusal
		if ch.Op != "promote" || !errors.As(err, &no) || !strings.Contains(no.text, "is not ready") {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(promotePoll):
		}
	}
}

func (a adminClient) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, usagef("--admin-addr: %v", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.authorization != "" {
		req.Header.Set("Authorization", a.authorization)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, a.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, a.unreachable(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, refused(resp, answer)
	}
	return answer, nil
}

// unreachable says what stood in the way of an answer.
func (a adminClient) unreachable(ctx context.Context, err error) error {
	var sig *signalError
	if errors.As(context.Cause(ctx), &sig) {
		return asExit(sig)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if ctx.Err() != nil {
		err = errors.New("none in time (--timeout)")
	}
	return exitf(exitNoSession, "no answer from the admin listener at %s: %w", strings.TrimPrefix(a.base, "http://"), err)
}

// refused makes an error of an answer that is none of success. Nothing of what
// was sent is repeated: it may hold the password.
func refused(resp *http.Response, answer []byte) error {
	text := strings.TrimSpace(string(answer))
	var e struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(answer, &e) == nil && e.Error != "" {
		text = e.Error
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		text = "changes need the super user's password: give a line digest:super:PASSWORD in --auth-file"
	case resp.StatusCode == http.StatusForbidden && text == "Not authorized":
		text = "the user and password of --auth-file are not those of the servers' --super-digest"
	case text == "":
		text = resp.Status
	}
	return &refusal{text}
}
