package main

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/spf13/pflag"
)

func restartOrderCommand() *command {
	return &command{
		name: "restart-order", args: "",
		does: "the order in which to restart the servers of a zlockd cluster",
		help: `Prints the members as they are best restarted, for another release or other flags:
those without a vote first, the leader last, so that leadership moves once. With
--wait it names one after the other and waits until you have restarted it, and it has
caught up; none is named while another is missing. Nothing is restarted by zlock.`,
		setup: func(fs *pflag.FlagSet) func(*call) error {
			f := addAdminFlags(fs, false)
			wait := fs.Bool("wait", false, "wait for each server to be restarted and to catch up")
			format := addFormat(fs)
			return func(c *call) error { return c.restartOrder(f, *wait, *format) }
		},
	}
}

// restartFirst puts members into the order of a rolling restart.
func restartFirst(members []memberInfo) []memberInfo {
	rank := map[string]int{"non-voter": 0, "voter": 1, "leader": 2}
	order := slices.Clone(members)
	slices.SortFunc(order, func(a, b memberInfo) int {
		return cmp.Or(cmp.Compare(rank[a.Role], rank[b.Role]), cmp.Compare(a.ID, b.ID))
	})
	return order
}

func (c *call) restartOrder(f *adminFlags, wait bool, format string) error {
	if len(c.args) > 0 {
		return usagef("restart-order takes no operands")
	}
	limits := *f
	if wait {
		limits.timeout = forever
	}
	ctx, admin, stop, err := c.admin(&limits)
	if err != nil {
		return err
	}
	defer stop()
	job := newMemberJob(ctx, c, admin, -1, forever)
	defer job.line.end()
	members, _, err := job.members()
	if err != nil {
		return err
	}
	if len(members) == 0 {
		c.say("the server runs alone, or has not joined its cluster yet")
		return nil
	}
	p := c.printer(format, "ID", "PEER-ADDR", "ROLE")
	row := func(m *memberInfo) error {
		p.row(m, strconv.Itoa(m.ID), m.Peer, m.Role)
		return p.flush()
	}
	if !wait {
		for _, m := range restartFirst(members) {
			p.row(m, strconv.Itoa(m.ID), m.Peer, m.Role)
		}
		return p.flush()
	}
	return job.awaitRestarts(members, row)
}

// restarted tells a server that was restarted from how it was before. A release
// that does not count its starts is missed in between instead.
type restarted struct {
	starts int64
	missed bool
}

func (r *restarted) is(m *memberInfo) bool {
	r.missed = r.missed || m.Heard == nil
	return m.well() && (m.Starts != r.starts || r.starts == 0 && r.missed)
}

// well reports whether a member runs and has caught up.
func (m *memberInfo) well() bool { return m.Heard != nil && m.Lag <= memberCaught && m.Waits == "" }

// awaitRestarts names one server after the other, while all others are well.
func (j *memberJob) awaitRestarts(members []memberInfo, name func(*memberInfo) error) error {
	before := map[int]*restarted{}
	for _, m := range members {
		before[m.ID] = &restarted{starts: m.Starts}
	}
	named := map[int]bool{}
	for {
		var left, ill []memberInfo
		for _, m := range restartFirst(members) {
			was := before[m.ID]
			if was == nil { // it came later, with what it was started with
				continue
			}
			switch {
			case was.is(&m):
				j.line.end()
				j.say("server %d was restarted", m.ID)
				delete(before, m.ID)
			default:
				left = append(left, m)
				if !m.well() {
					ill = append(ill, m)
				}
			}
		}
		if len(left) == 0 {
			return nil
		}
		next := &left[0]
		switch {
		case len(ill) > 0 && !named[ill[0].ID]:
			j.line.show("waiting for server %d: it does not serve, or lacks %d entries (%s)", ill[0].ID, ill[0].Lag, ill[0].Waits)
		case len(ill) > 0:
			j.line.show("server %d is being restarted", ill[0].ID)
		case !named[next.ID]:
			j.line.end()
			if err := name(next); err != nil {
				return err
			}
			named[next.ID] = true
		default:
			j.line.show("waiting for server %d to be restarted", next.ID)
		}
		if err := j.pause(); err != nil {
			return err
		}
		var err error
		if members, _, err = j.members(); err != nil {
			return err
		}
	}
}
