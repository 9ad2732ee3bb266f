package manage

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// RestartOrder is zlock restart-order.
func RestartOrder() *call.Command {
	return &call.Command{
		Name:   "restart-order",
		Does:   "print the order in which to restart the servers of a zlockd cluster",
		Prints: []any{memberInfo{}},
		Help: `Prints the members in the best order for a restart with another release or other flags:
those without a vote first and the leader last, so that leadership moves only once. With
--wait it names one member after the other, and waits until you have restarted it and it
has caught up. It names no member while another is missing. zlock itself restarts no member.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			f := connect.AddAdminFlags(fs, false)
			wait := fs.Bool("wait", false, "wait for each server to be restarted and to catch up")
			format := call.AddFormat(fs)
			return func(c *call.Call) error { return restartOrder(c, f, *wait, *format) }
		},
	}
}

func leads(m memberInfo) bool { return m.Role == "leader" }

// restartFirst sorts members into the order of a rolling restart.
func restartFirst(members []memberInfo) []memberInfo {
	rank := map[string]int{"non-voter": 0, "voter": 1, "leader": 2}
	order := slices.Clone(members)
	slices.SortFunc(order, func(a, b memberInfo) int {
		return cmp.Or(cmp.Compare(rank[a.Role], rank[b.Role]), cmp.Compare(a.ID, b.ID))
	})
	return order
}

func restartOrder(c *call.Call, f *connect.AdminFlags, wait bool, format string) error {
	if wait {
		f.Timeout = 0
	}
	return connect.WithAdmin(c, f, func(ctx context.Context, admin connect.Admin) error {
		w := &restartWatch{Call: c, admin: admin, line: call.NewStatusLine(c.App)}
		defer w.line.End()
		members, err := w.members(ctx)
		if err != nil {
			return err
		}
		if len(members) == 0 {
			const alone = "the server runs alone, or has not joined its cluster yet"
			if wait { // fail, as the list may be empty only because this server has just started
				return cli.Exitf(call.ExitNo, "%s; ask another server (--admin-addr)", alone)
			}
			c.Say("%s", alone)
			return nil
		}
		p := c.Printer(format, "ID", "PEER-ADDR", "ROLE")
		row := func(m *memberInfo) { p.Row(m, m.ID, m.Peer, m.Role) }
		if wait {
			return w.awaitRestarts(ctx, members, func(m *memberInfo) error { row(m); return p.Flush() })
		}
		if !slices.ContainsFunc(members, leads) { // the list may be old: this server may be removed
			return cli.Exitf(call.ExitNo, "this server knows no leader, and the leader must restart last; ask "+
				"another server (--admin-addr)")
		}
		for _, m := range restartFirst(members) {
			row(&m)
		}
		return p.Flush()
	})
}

// restartWatch follows the members while an operator restarts them.
type restartWatch struct {
	*call.Call
	admin    connect.Admin
	line     *call.StatusLine
	answered bool // a server has answered, so its address is right
}

// members() reads the list of members. If no server answers, it asks again, because a server may be
// restarting; but before the first answer it returns the error.
func (w *restartWatch) members(ctx context.Context) ([]memberInfo, error) {
	for {
		asked, cancel := context.WithTimeout(ctx, memberSilent)
		list, err := askMembers(asked, w.admin)
		cancel()
		switch {
		case err == nil:
			w.answered = true
			return membersOf(list), nil
		case !w.answered || !cli.HasCode(err, call.ExitNoSession):
			return nil, err
		}
		if err := call.Sleep(ctx, memberPoll); err != nil {
			return nil, err
		}
	}
}

// awaitRestarts calls name() for the server that the operator should restart next. It names another one when
// all other servers are well. It returns when every server has restarted and serves, or has been removed. It
// does not rely on a list without a leader: a server that starts has an empty list at first.
func (w *restartWatch) awaitRestarts(ctx context.Context, members []memberInfo,
	name func(*memberInfo) error) error {
	before := map[uint32]uint64{} // number of starts of each server
	for _, m := range members {
		before[m.ID] = m.Starts
	}
	named := map[uint32]bool{}
	for {
		var left, ill []memberInfo
		for _, m := range restartFirst(members) {
			if !m.Well() {
				ill = append(ill, m)
			}
			starts, waits := before[m.ID]
			if waits && starts == 0 { // its first answer: only a later, different number of starts shows a restart
				starts = m.Starts
				before[m.ID] = starts
			}
			switch {
			case !waits: // done: it has restarted, or it joined only after the command began
			case m.Well() && m.Starts != starts:
				w.line.End()
				w.Say("server %d was restarted", m.ID)
				delete(before, m.ID)
			default:
				left = append(left, m)
			}
		}
		if slices.ContainsFunc(members, leads) {
			for id := range before {
				if !slices.ContainsFunc(members, func(m memberInfo) bool { return m.ID == id }) {
					w.line.End()
					w.Say("server %d is no longer a member", id)
					delete(before, id)
				}
			}
		}
		switch {
		case len(ill) > 0 && !named[ill[0].ID]:
			w.line.Show("waiting for server %d: it does not serve, or lacks %d entries (%s)", ill[0].ID,
				ill[0].Lag, ill[0].Waits)
		case len(ill) > 0:
			w.line.Show("server %d is being restarted", ill[0].ID)
		case len(before) == 0:
			return nil
		case len(left) == 0:
			w.line.Show("waiting for a server that knows all members")
		case !named[left[0].ID]:
			w.line.End()
			if err := name(&left[0]); err != nil {
				return err
			}
			named[left[0].ID] = true
		default:
			w.line.Show("waiting for server %d to be restarted", left[0].ID)
		}
		if err := call.Sleep(ctx, memberPoll); err != nil {
			return err
		}
		var err error
		if members, err = w.members(ctx); err != nil {
			return err
		}
	}
}
