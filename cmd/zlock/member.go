package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/raftfsm/status"
)

func memberCommand() *command {
	return &command{
		Name: "member", Args: "list, add ID PEER-ADDR, promote ID, replace ID [NEW-ADDR], lead ID, or remove ID",
		Most: -1, Words: []string{"list", "add", "promote", "replace", "lead", "remove"},
		Does: "show and change the members of a zlockd cluster",
		Help: `Talks to the admin address of a server, any one of the cluster.

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
		Setup: func(fs *pflag.FlagSet) func(*call) error {
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

// memberOps are the least and the most operands of each operation.
var memberOps = map[string][2]int{"list": {0, 0}, "add": {2, 2}, "promote": {1, 1}, "replace": {1, 2},
	"lead": {1, 1}, "remove": {1, 1}}

func (c *call) member(f *adminFlags, noVote bool, format string) error {
	if len(c.Args) == 0 {
		return cli.Usagef("say list, add, promote, replace, lead or remove")
	}
	op, args := c.Args[0], c.Args[1:]
	n, ok := memberOps[op]
	switch {
	case !ok:
		return cli.Usagef("%q is not one of list, add, promote, replace, lead, remove", op)
	case len(args) < n[0] || len(args) > n[1]:
		return cli.Usagef("member %s takes %d operands", op, n[0])
	case noVote && op != "add":
		return cli.Usagef("--no-vote is for add")
	}
	if op == "list" {
		return c.withAdmin(f, func(ctx context.Context, admin adminClient) error {
			return c.listMembers(ctx, admin, format)
		})
	}
	id, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return cli.Usagef("the ID of a member is a number")
	}
	job := status.Job{Op: op, ID: uint32(id), Wait: true, NoVote: noVote, Patience: f.timeout.Milliseconds()}
	if len(args) > 1 {
		job.Addr = args[1]
	}
	patience := f.timeout
	f.timeout = 0 // a job may take as long as it makes progress
	return c.withAdmin(f, func(ctx context.Context, admin adminClient) error {
		return c.memberJob(ctx, admin, job, patience)
	})
}

func (c *call) listMembers(ctx context.Context, admin adminClient, format string) error {
	list, err := admin.members(ctx)
	if err != nil {
		return err
	}
	members := membersOf(list)
	switch {
	case len(members) == 0:
		c.say("the server runs alone, or has not joined its cluster yet")
	case list.Leader == 0:
		c.say("no server leads: %s", cmp.Or(list.Reason, "the next election is under way"))
	}
	p := c.printer(format, "ID", "PEER-ADDR", "CLIENT-ADDR", "ROLE", "APPLIED", "LAG", "LAST-HEARD", "VERSION")
	for _, m := range members {
		var applied, lag, heard any = "", "", ""
		if m.Applied > 0 {
			applied, lag = m.Applied, m.Lag
		}
		if m.Heard != nil {
			heard = (time.Duration(*m.Heard) * time.Millisecond).Round(10 * time.Millisecond)
		}
		p.row(m, m.ID, m.Peer, m.Client, m.Role, applied, lag, heard, m.Version)
	}
	return p.flush()
}

// adminClient talks to a server's admin listener.
type adminClient struct {
	base          string
	http          *http.Client
	authorization string           // header, "" for none
	token         string           // of the lock view's page, for its actions
	cut           func(why string) // tells that an answer is not whole
}

// memberInfo is a member as zlock prints it.
type memberInfo struct {
	ID     uint32 `json:"id"`
	Peer   string `json:"peer"`
	Client string `json:"client,omitempty"`
	Role   string `json:"role"` // leader, voter or non-voter
	status.Progress
}

func membersOf(list *status.Members) (members []memberInfo) {
	for _, m := range list.List() {
		role := "non-voter"
		switch {
		case m.ID == list.Leader:
			role = "leader"
		case m.Voter:
			role = "voter"
		}
		members = append(members, memberInfo{m.ID, m.Peer, m.Client, role, m.Progress})
	}
	return members
}

// members reads the list of members.
func (a adminClient) members(ctx context.Context) (*status.Members, error) {
	list := new(status.Members)
	return list, a.ask(ctx, "/members", nil, list)
}

// do sends a request and reads the answer, one JSON object.
func (a adminClient) do(ctx context.Context, method, path string, body, into any) error {
	reply, err := a.open(ctx, method, path, body)
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
		return fmt.Errorf("the answer of %s is not understood: %w", a.base, err)
	}
	if part.Truncated != "" {
		a.cut(part.Truncated)
	}
	return nil
}

// open sends a request with a body, a file or an object in JSON, if it has any. It returns the
// servers' reply, which the caller reads and closes.
func (a adminClient) open(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
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
	if a.token != "" {
		req.Header.Set("X-Zlockd-Token", a.token)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, a.unreachable(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // part of the text is enough
	return nil, refused(resp, answer)
}

// unreachable says why no answer came.
func (a adminClient) unreachable(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("none in time (--timeout)")
	}
	return cli.Exitf(exitNoSession, "no answer from the admin listener at %s: %w",
		strings.TrimPrefix(a.base, "http://"), err)
}

var errNotSuper = errors.New("the user and password of --auth-file are not those of the servers' " +
	"--super-digest")

// refused turns an answer that reports no success into an error with exit code 1. It repeats
// nothing of the request, which may hold the password.
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
	return &cli.ExitError{Code: exitNo, Err: status.With(e.Code, cmp.Or(cause, errors.New(text)))}
}
