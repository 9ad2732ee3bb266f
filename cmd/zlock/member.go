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
		name: "member", args: "list, add ID PEER-ADDR, promote ID, replace ID [NEW-ADDR], lead ID, or remove ID",
		subs: []string{"list", "add", "promote", "replace", "lead", "remove"},
		does: "show and change the members of a zlockd cluster",
		help: `Talks to the admin address of a server, any one of the cluster.

list     shows how far each member is: the log entries that it has applied, those
         that it lacks, when it was last heard from, and its version
add      waits until the server runs, follows, has caught up, and has its vote;
         with --no-vote it stops before that
promote  the same for a member without a vote
replace  the server lost its disk, or is another machine: its place is given to the
         empty one that runs at its address, or at NEW-ADDR
lead     hands the leadership to a member
remove   takes a member out; then stop it

What takes long shows how it goes on, and is given up only when there has been no
progress for --timeout. Given up or interrupted, the same command goes on where it
stood. Changes need the password of the servers' --super-digest in --auth-file. Exit
code: 0, 1 if the servers refuse, 120 if none answers.`,
		setup: func(fs *pflag.FlagSet) func(*call) error {
			f := addAdminFlags(fs, true)
			f.timeout = 30 * time.Second
			timeout := fs.Lookup("timeout")
			timeout.DefValue, timeout.Usage = "30s", "give up when there was no progress for this time"
			noVote := fs.Bool("no-vote", false, "let the server that is added follow without a vote")
			format := addFormat(fs)
			return func(c *call) error { return c.member(f, *noVote, *format) }
		},
	}
}

// memberOps are the operands that each takes.
var memberOps = map[string][2]int{"list": {0, 0}, "add": {2, 2}, "promote": {1, 1}, "replace": {1, 2}, "lead": {1, 1}, "remove": {1, 1}}

func (c *call) member(f *adminFlags, noVote bool, format string) error {
	if len(c.args) == 0 {
		return usagef("say list, add, promote, replace, lead or remove")
	}
	op, args := c.args[0], c.args[1:]
	n, ok := memberOps[op]
	switch {
	case !ok:
		return usagef("%q is none of list, add, promote, replace, lead, remove", op)
	case len(args) < n[0] || len(args) > n[1]:
		return usagef("member %s takes %d operands", op, n[0])
	case noVote && op != "add":
		return usagef("--no-vote is for add")
	}
	limits := *f
	if op != "list" {
		limits.timeout = forever // what is under way may take as long as it goes on
	}
	ctx, admin, stop, err := c.admin(&limits)
	if err != nil {
		return err
	}
	defer stop()
	if op == "list" {
		return c.listMembers(ctx, admin, format)
	}
	id, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return usagef("the ID of a member is a number")
	}
	addr := ""
	if len(args) > 1 {
		addr = args[1]
	}
	j := newMemberJob(ctx, c, admin, int(id), f.timeout)
	defer j.line.end()
	switch op {
	case "add":
		err = j.add(addr, !noVote)
	case "promote":
		err = j.promote()
	case "replace":
		err = j.replace(addr)
	case "lead":
		err = j.lead()
	case "remove":
		err = j.remove()
	}
	var refused *refusal
	if errors.As(err, &refused) {
		return exitf(exitNo, "%v", err)
	}
	return err
}

const forever = 365 * 24 * time.Hour

func (c *call) listMembers(ctx context.Context, admin adminClient, format string) error {
	members, err := admin.members(ctx)
	if err != nil {
		return err
	}
	if len(members) == 0 {
		c.say("the server runs alone, or has not joined its cluster yet")
	}
	p := c.printer(format, "ID", "PEER-ADDR", "CLIENT-ADDR", "ROLE", "APPLIED", "LAG", "LAST-HEARD", "VERSION")
	for _, m := range members {
		applied, lag, heard := "", "", ""
		if m.Applied > 0 {
			applied, lag = strconv.FormatInt(m.Applied, 10), strconv.FormatInt(m.Lag, 10)
		}
		if m.Heard != nil {
			heard = (time.Duration(*m.Heard) * time.Millisecond).Round(10 * time.Millisecond).String()
		}
		p.row(m, strconv.Itoa(m.ID), m.Peer, m.Client, m.Role, applied, lag, heard, m.Version)
	}
	return p.flush()
}

// adminClient talks to a server's admin listener.
type adminClient struct {
	base          string
	authorization string // header, "" for none
	token         string // of the lock view's page, for its actions
}

// memberChange is the body of POST /members.
type memberChange struct {
	Op   string `json:"op"` // add, promote, remove, lead, move or check
	ID   uint32 `json:"id"`
	Addr string `json:"addr,omitempty"`
}

// memberInfo is one member.
type memberInfo struct {
	ID     int    `json:"id"`
	Peer   string `json:"peer"`
	Client string `json:"client,omitempty"`
	Role   string `json:"role"` // leader, voter or non-voter
	memberFar
}

// votes reports whether the member has a vote.
func (m *memberInfo) votes() bool { return m.Role != "non-voter" }

// memberFar is how far a member is.
type memberFar struct {
	Applied      int64  `json:"applied"`
	Lag          int64  `json:"lag"`
	LagBytes     *int64 `json:"lag_bytes"` // nil: not known
	Heard        *int64 `json:"heard_ms"`  // nil: it is not heard
	Version      string `json:"version"`
	Starts       int64  `json:"starts"`
	SnapshotSent int64  `json:"snapshot_sent"`
	SnapshotSize int64  `json:"snapshot_size"`
	Waits        string `json:"waits,omitempty"`
}

// untold reports whether it is not told how far the member is, by a release that
// does not tell it.
func (m *memberFar) untold() bool {
	return m.Heard == nil && m.Applied == 0 && m.Version == "" && m.Waits == ""
}

// memberFound is what answers at an address.
type memberFound struct {
	memberFar
	At    string `json:"at"`
	Known bool   `json:"known"`
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
			memberFar
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
		members = append(members, memberInfo{id, m.Peer, m.Client, role, m.memberFar})
	}
	slices.SortFunc(members, func(x, y memberInfo) int { return x.ID - y.ID })
	return members, nil
}

// change asks for a change and waits until it is done or refused.
func (a adminClient) change(ctx context.Context, ch memberChange) error {
	_, err := a.post(ctx, ch)
	return err
}

// check looks what answers at an address.
func (a adminClient) check(ctx context.Context, id int, addr string) (found memberFound, err error) {
	body, err := a.post(ctx, memberChange{Op: "check", ID: uint32(id), Addr: addr})
	if err == nil {
		err = json.Unmarshal(body, &found)
	}
	return found, err
}

func (a adminClient) post(ctx context.Context, ch memberChange) ([]byte, error) {
	body, err := json.Marshal(ch)
	if err != nil {
		return nil, err
	}
	return a.do(ctx, http.MethodPost, "/members", body)
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
	if a.token != "" {
		req.Header.Set("X-Zlockd-Token", a.token)
	}
	resp, err := adminHTTP.Do(req)
	if err != nil {
		return nil, a.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
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
		text = "this needs the super user's password: give a line digest:super:PASSWORD in --auth-file"
	case resp.StatusCode == http.StatusForbidden && text == "Not authorized":
		text = "the user and password of --auth-file are not those of the servers' --super-digest"
	case text == "":
		text = resp.Status
	}
	return &refusal{text}
}
