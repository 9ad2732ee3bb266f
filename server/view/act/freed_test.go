package act

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A dry run of the action "break" names the clients that would get the lock next. It says whether a holder
// would lose the lock or a waiter would leave.
func TestClientsThatGetTheLockNext(t *testing.T) {
	const policy = `{"zl":1,"layout":"rw1","policy":"%s"}`
	// Each word is a contender with a session of its own. The first contender is removed.
	for _, c := range []struct{ kind, contenders, first, next string }{
		{"sem", "leases/_c_U-lease-0000000000 leases/_c_U-lease-0000000001 locks/_c_U-lock-0000000002 " +
			"locks/_c_U-lock-0000000003", "loses", "2"},
		{"sem", "locks/_c_U-lock-0000000002 locks/_c_U-lock-0000000003", "leaves", ""},
		{"plain", "lock-0000000000 lock-0000000001 lock-0000000002", "loses", "1"},
		{"plain", "write-0000000000 read-0000000001 read-0000000002 write-0000000003", "loses", "1 2"},
		{"plain", "U__party__", "is no longer a participant", ""},
		{"fair", "h-U-W+q-U-W-0000000000 q-U-W-0000000001 q-U-R-0000000002", "loses", "1"},
		{"fair", "h-U-W+q-U-W-0000000000 q-U-R-0000000001 q-U-R-0000000002 q-U-W-0000000003 q-U-R-0000000004",
			"loses", "1 2"},
		{"reader", "h-U-W+q-U-W-0000000000 q-U-W-0000000001 q-U-R-0000000002 q-U-R-0000000003", "loses", "2 3"},
		{"reader", "h-U-W+q-U-W-0000000000 q-U-W-0000000001 q-U-W-0000000002", "loses", "1"},
		{"writer", "h-U-W+q-U-W-0000000000 q-U-R-0000000001 q-U-W-0000000002", "loses", "2"},
		{"fair", "q-U-W-0000000000 q-U-W-0000000001", "leaves", ""},
	} {
		l := newLone()
		who := map[string]string{} // by session: the number of its contender
		setup := l.client()
		switch c.kind {
		case "sem":
			l.create(setup, "/l", `{"zl":1,"limit":2}`, 0)
			l.create(setup, "/l/leases", "", 0)
			l.create(setup, "/l/locks", "", 0)
		case "plain":
			l.create(setup, "/l", "", 0)
		default:
			l.create(setup, "/l", fmt.Sprintf(policy, c.kind), 0)
		}
		var mine []string
		for i, nodes := range strings.Fields(c.contenders) {
			s := l.client()
			who["0x"+strconv.FormatUint(uint64(s.ID), 16)] = strconv.Itoa(i)
			for node := range strings.SplitSeq(nodes, "+") {
				id := fmt.Sprintf("0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d%02d", i)
				if strings.HasSuffix(node, "party__") {
					id = strings.ReplaceAll(id, "-", "")
				}
				path := "/l/" + strings.ReplaceAll(node, "U", id)
				l.create(s, path, "", jute.FlagEphemeral)
				if i == 0 {
					mine = append(mine, path)
				}
			}
		}
		v := actorOf(l)
		is, _ := l.node(mine[0])
		plan, err := v.planBreak(t.Context(), &action{Path: "/l", Node: strings.TrimPrefix(mine[0], "/l/"),
			Token: strconv.FormatInt(is.Czxid, 10)})
		must.OK(t, err)
		expect.Has(t, plan.hits[0].What, c.first, "%s: the first", c.contenders)
		var next []string
		for _, h := range plan.hits[1:] {
			expect.Equal(t, h.What, "gets the lock")
			next = append(next, who[h.Session])
		}
		expect.Equal(t, strings.Join(next, " "), c.next, "break %s", c.contenders)
	}
}

// In a lock with a policy, a writer has two nodes: its hold, and its place in the queue. The next contender
// waits for the place. So a break removes both nodes: a client that hangs may keep its session for long.
func TestBreakOfAWriterLetsTheNextOneIn(t *testing.T) {
	const first, next = "0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-W", "0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d02-W"
	for _, gone := range []bool{false, true} {
		l := newLone()
		a, b := l.client(), l.client()
		l.create(a, "/l", `{"zl":1,"layout":"rw1","policy":"fair"}`, 0)
		l.create(a, "/l/q-"+first+"-0000000000", "", jute.FlagEphemeral)
		l.create(a, "/l/h-"+first, "", jute.FlagEphemeral)
		l.create(b, "/l/q-"+next+"-0000000001", "", jute.FlagEphemeral)
		is, _ := l.node("/l/h-" + first)
		v := actorOf(l)
		plan := must.Get(v.planBreak(t.Context(), &action{Path: "/l", Node: "h-" + first,
			Token: strconv.FormatInt(is.Czxid, 10)}))(t)
		expect.Equal(t, plan.does, "remove /l/h-"+first+" and /l/q-"+first+"-0000000000")
		if gone { // the client has given its hold back
			l.delete(a, "/l/h-"+first)
			l.delete(a, "/l/q-"+first+"-0000000000")
			expect.Is(t, plan.do(t.Context()), errGone)
			continue
		}
		must.OK(t, plan.do(t.Context()))
		expect.List(t, l.st.Tree().Children("/l"), []string{"q-" + next + "-0000000001"}, "left")
		q, _, err := v.look.At(t.Context(), "/l")
		must.OK(t, err)
		if expect.Equal(t, len(q.Waiters), 1, "number of waiters %v", q.Waiters) {
			expect.Equal(t, len(q.Waiters[0].BlockedBy), 0, "number of blocked by")
		}
	}
}
