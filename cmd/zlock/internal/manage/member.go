// Package manage has the commands with which an operator changes a cluster: members, sessions, the whole
// state, certificates, and other clients' locks.
package manage

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// Member is zlock member.
func Member() *call.Command {
	return &call.Command{
		Name: "member",
		Args: "list, add ID PEER-ADDR, promote ID, replace ID [NEW-ADDR], lead ID, or remove ID",
		Most: -1, Words: []string{"list", "add", "promote", "replace", "lead", "remove"},
		Does:   "show and change the members of a zlockd cluster",
		Prints: []any{memberInfo{}},
		Help: `Talks to the admin address of any server of the cluster.

list     shows the progress of each member: the log entries that it has applied, those
         that it lacks, when it was last heard from, and its version
add      waits until the server runs, follows, has caught up, and has its vote;
         with --no-vote it stops before the vote
promote  does the same for a member without a vote
replace  for a server that lost its disk or its machine: gives its place to the server
         with an empty data directory at its address, or at NEW-ADDR
lead     hands the leadership to a member
remove   removes a member; stop its server afterwards

A long job shows its progress, and fails only after --timeout without progress. After a
failure or an interruption the same command continues the job. Changes need the password
of the servers' --super-digest in --auth-file. Exit code: 0, 1 if the servers refuse, 120
if none answers.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			f := connect.AddAdminFlags(fs, true)
			f.Timeout = 30 * time.Second
			timeout := fs.Lookup("timeout")
			timeout.DefValue, timeout.Usage = "30s", "give up when there was no progress for this time"
			noVote := fs.Bool("no-vote", false, "let the server that is added follow without a vote")
			format := call.AddFormat(fs)
			return func(c *call.Call) error { return member(c, f, *noVote, *format) }
		},
	}
}

// memberOps has the least and the greatest number of operands of each operation.
var memberOps = map[change.Op][2]int{opList: {0, 0}, change.Add: {2, 2}, change.Promote: {1, 1},
	change.Replace: {1, 2}, change.Lead: {1, 1}, change.Remove: {1, 1}}

const opList change.Op = "list" // shows the members

func member(c *call.Call, f *connect.AdminFlags, noVote bool, format string) error {
	if len(c.Args) == 0 {
		return cli.Usagef("want list, add, promote, replace, lead or remove")
	}
	op, args := change.Op(c.Args[0]), c.Args[1:]
	n, ok := memberOps[op]
	switch {
	case !ok:
		return cli.Usagef("%q is not one of list, add, promote, replace, lead, remove", op)
	case len(args) < n[0] || len(args) > n[1]:
		return cli.Usagef("member %s takes %d operands", op, n[0])
	case noVote && op != change.Add:
		return cli.Usagef("--no-vote works only with add")
	}
	if op == opList {
		return connect.WithAdmin(c, f, func(ctx context.Context, admin connect.Admin) error {
			return listMembers(ctx, c, admin, format)
		})
	}
	id, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return cli.Usagef("the ID of a member must be a number")
	}
	job := change.Job{Op: op, ID: uint32(id), Wait: true, NoVote: noVote, Patience: f.Timeout.Milliseconds()}
	if len(args) > 1 {
		job.Addr = args[1]
	}
	patience := f.Timeout
	f.Timeout = 0 // a job may take any time; memberJob uses `patience` while the server does not answer
	return connect.WithAdmin(c, f, func(ctx context.Context, admin connect.Admin) error {
		return memberJob(ctx, c, admin, job, patience)
	})
}

func listMembers(ctx context.Context, c *call.Call, admin connect.Admin, format string) error {
	list, err := askMembers(ctx, admin)
	if err != nil {
		return err
	}
	members := membersOf(list)
	switch {
	case len(members) == 0:
		c.Say("the server runs alone, or has not joined its cluster yet")
	case list.Leader == 0:
		c.Say("no server leads: %s", cmp.Or(list.Reason, "the next election is under way"))
	}
	p := c.Printer(format, "ID", "PEER-ADDR", "CLIENT-ADDR", "ROLE", "APPLIED", "LAG", "LAST-HEARD", "VERSION")
	for _, m := range members {
		var applied, lag, heard any = "", "", ""
		if m.Applied > 0 {
			applied, lag = m.Applied, m.Lag
		}
		if m.Heard != nil {
			heard = (time.Duration(*m.Heard) * time.Millisecond).Round(10 * time.Millisecond)
		}
		p.Row(m, m.ID, m.Peer, m.Client, m.Role, applied, lag, heard, m.Version)
	}
	return p.Flush()
}

// memberInfo is a member in the output of zlock.
type memberInfo struct {
	ID     uint32 `json:"id"`
	Peer   string `json:"peer"`
	Client string `json:"client,omitempty"`
	Role   string `json:"role"` // leader, voter or non-voter
	status.Progress
}

// askMembers reads the list of members.
func askMembers(ctx context.Context, admin connect.Admin) (*status.Members, error) {
	list := new(status.Members)
	return list, admin.Ask(ctx, "/members", nil, list)
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
