package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// Runner sends programs to two servers. The first is the reference.
type Runner struct {
	// Pipeline sends joined steps to the second server in one piece. The first server always gets
	// one request at a time. ZooKeeper 3.8 checks a request against the requests still in its
	// pipeline, and forgets parts of them (the new ACL of a setACL, all of a multi that failed,
	// what counts for a quota), so that its answers would depend on timing.
	Pipeline bool
	// Exact demands that the second server's replies show only zxids of changes: a request that changes
	// nothing gets no zxid.
	Exact bool

	// Restart, if set, kills the second server and starts it again from its disk. Programs then contain
	// restarts.
	Restart func() error

	// Patience bounds the wait for any single frame.
	Patience time.Duration

	a, b     *side
	sessions int
	// Uses counts by name how often each Known difference occurred.
	Uses map[string]int
	// Ops counts the requests sent, barriers not included.
	Ops int
	// Answers counts the answers of the first server, by operation and code, and its events, by type.
	Answers map[string]int
}

// NewRunner returns a runner for the servers at the two addresses. An address
// may be a list, separated by commas, of the servers of an ensemble.
func NewRunner(addrA, addrB string) *Runner {
	const patience = 15 * time.Second
	return &Runner{Patience: patience, a: newSide(strings.Split(addrA, ","), patience),
		b:    newSide(strings.Split(addrB, ","), patience),
		Uses: map[string]int{}, Answers: map[string]int{}}
}

// Difference is an answer on which the servers disagree.
type Difference struct {
	Step Step
	Conn string // the connection that shows it
	A, B string // what each server did
}

// Error describes the difference.
func (d *Difference) Error() string {
	return fmt.Sprintf("servers differ after\n    %v\non connection %s\n  A: %s\n  B: %s", d.Step, d.Conn, d.A,
		d.B)
}

// Run runs a program from a clean state and returns the first difference.
func (r *Runner) Run(p Program) error {
	if err := r.Reset(); err != nil {
		return err
	}
	for _, steps := range p.pieces() {
		if _, err := r.Do(steps); err != nil {
			return err
		}
	}
	return nil
}

// pieces() splits a program into lists of steps that are sent together.
func (p Program) pieces() (list [][]Step) {
	for len(p) > 0 {
		n := 1
		for n < len(p) && joins(&p[n], &p[n-1]) {
			n++
		}
		list = append(list, p[:n:n])
		p = p[n:]
	}
	return list
}

// joins() reports whether a step can be sent together with the step before.
func joins(s, before *Step) bool {
	return s.Joined && s.Conn == before.Conn && !ops[s.Op].solo && !ops[before.Op].solo
}

// Do sends steps of one connection and compares all their consequences, on all connections. It
// returns what the first server answered.
func (r *Runner) Do(steps []Step) ([]got, error) {
	first := &steps[0]
	switch first.Op {
	case "connect", "attach":
		return nil, r.open(first)
	case "drop":
		return nil, r.drop(first)
	case "restart":
		return nil, r.restart()
	}
	if r.a.conns[first.Conn] == nil || r.b.conns[first.Conn] == nil {
		return nil, nil // a shrunk program may use connections that it does not open
	}
	var list []*Step
	for i := range steps {
		if possible(&steps[i]) {
			list = append(list, &steps[i])
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	r.Ops += len(list)
	first = list[0]
	if r.Pipeline {
		r.b.send(first.Conn, list)
	}
	var fromA, fromB []got
	for _, st := range list {
		r.a.send(first.Conn, []*Step{st})
		if !r.Pipeline {
			r.b.send(first.Conn, []*Step{st})
			fromB = append(fromB, r.b.collect(first.Conn)...)
		}
		fromA = append(fromA, r.a.collect(first.Conn)...)
	}
	if r.Pipeline {
		fromB = r.b.collect(first.Conn)
	}
	if ops[first.Op].solo {
		fromA = append(fromA, r.a.ending(first, fromA)...)
		fromB = append(fromB, r.b.ending(first, fromB)...)
	}
	err := r.quiesce(first, list, fromA, fromB)
	return fromA, err
}

// possible() refuses steps that crash the first server.
func possible(s *Step) bool {
	if slices.ContainsFunc(s.Ops, func(o Step) bool { return !possible(&o) }) {
		return false
	}
	// A createTTL with a negative TTL, and with flags that ask for no TTL, crashes ZooKeeper 3.8.
	return s.Op != "createTTL" || s.TTL >= 0 || s.Flags > 4
}

// ending() waits for the end of the connection if a reply announces it.
func (s *side) ending(st *Step, list []got) []got {
	if st.Op == "raw" {
		return s.drain(st.Conn)
	}
	if s.conns[st.Conn] == nil || len(list) == 0 {
		return nil
	}
	last := list[len(list)-1].frame
	if st.Op == "closeSession" || st.Op == "auth" && last.Code != jute.OK || st.Op == "op" &&
		last.Code == jute.Unimplemented && last.Zxid == -1 {
		return s.drain(st.Conn)
	}
	return nil
}

// quiesce() waits until every consequence of the last steps has arrived, and compares all of them.
func (r *Runner) quiesce(first *Step, steps []*Step, fromA, fromB []got) error {
	seenA, seenB := map[string][]got{first.Conn: fromA}, map[string][]got{first.Conn: fromB}
	r.a.barrier(seenA)
	r.b.barrier(seenB)
	began := len(r.b.commits)
	// Compare the acting connection first, because its replies name the changes that other connections see.
	if err := r.compare(first, first.Conn, seenA[first.Conn], seenB[first.Conn]); err != nil {
		return err
	}
	for _, name := range sortedKeys(seenA, seenB) {
		if name != first.Conn {
			if err := r.compare(first, name, seenA[name], seenB[name]); err != nil {
				return err
			}
		}
	}
	return r.checkEvents(first, steps, seenB, r.b.commits[began:])
}

// barrier() sends a ping on every connection and collects what arrives before its reply.
func (s *side) barrier(seen map[string][]got) {
	names := s.names()
	for _, name := range names {
		if len(s.addrs) > 1 {
			s.send(name, []*Step{catchUp, ping})
		} else {
			s.send(name, []*Step{ping})
		}
	}
	for _, name := range names {
		seen[name] = append(seen[name], s.collect(name)...)
	}
}

func sortedKeys(a, b map[string][]got) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// compare() compares what arrived on one connection.
func (r *Runner) compare(st *Step, conn string, fromA, fromB []got) error {
	if st.Op == "closeSession" {
		sortEvents(fromA)
		sortEvents(fromB)
	}
	d := diff{r: r, step: st, conn: conn}
	i, k := 0, 0
	for i < len(fromA) || k < len(fromB) {
		var ga, gb *got
		if i < len(fromA) {
			ga = &fromA[i]
		}
		if k < len(fromB) {
			gb = &fromB[k]
		}
		if ga != nil && gb != nil && ga.step != nil && ga.step == gb.step {
			if err := r.commit(ga, gb); err != nil {
				return &Difference{*st, conn, "zxids", err.Error()}
			}
		}
		d.a, d.b = nil, nil
		if ga != nil {
			c := r.a.canonical(*ga)
			d.a = &c
			r.count(&c)
		}
		if gb != nil {
			c := r.b.canonical(*gb)
			d.b = &c
		}
		if d.a != nil && d.b != nil && d.a.text == d.b.text {
			if strings.Contains(d.a.text, wrong) {
				return &Difference{*st, conn, d.a.text, d.b.text}
			}
			i, k = i+1, k+1
			continue
		}
		skipA, skipB := d.known()
		if skipA+skipB == 0 {
			return &Difference{*d.about(), conn, d.a.String(), d.b.String()}
		}
		i, k = i+skipA, k+skipB
	}
	return nil
}

// count() adds an answer to the statistics.
func (r *Runner) count(c *canon) {
	switch {
	case c.event != nil:
		r.Answers[c.event.String()]++
	case c.step != nil && c.step != ping:
		r.Answers[fmt.Sprintf("%s %d", c.step.Op, c.code)]++
	}
}

// about() returns the step that a differing reply answers. If no reply differs, it returns the step that was
// sent.
func (d *diff) about() *Step {
	for _, c := range []*canon{d.a, d.b} {
		if c != nil && c.step != nil && c.step != ping {
			return c.step
		}
	}
	return d.step
}

// String returns the canonical text. c is nil if no frame came.
func (c *canon) String() string {
	if c == nil {
		return "nothing"
	}
	return c.text
}

// commit() records the zxids of a change that both servers made. If nothing changed, it checks the zxid in
// the header of the second server's reply.
func (r *Runner) commit(a, b *got) error {
	if a.frame.Event != nil || b.frame.Event != nil || a.end != nil || b.end != nil {
		return nil
	}
	madeA, madeB := succeeded(a.step, *a), succeeded(b.step, *b)
	if madeA && madeB {
		return r.change(a.frame.Zxid, b.frame.Zxid)
	}
	switch {
	case madeA != madeB, b.frame.Zxid <= 0:
	case b.step.Op == "multi" && b.frame.Code == jute.OK:
		// The server may choose whether a multi that changes nothing has a zxid.
		r.b.high = max(r.b.high, b.frame.Zxid)
	case r.Exact && b.frame.Zxid > r.b.high:
		return fmt.Errorf("reply to %s shows zxid %x, the last change was %x", b.step.Op, b.frame.Zxid, r.b.high)
	}
	return nil
}

// change() records one change.
func (r *Runner) change(zxidA, zxidB int64) error {
	for _, c := range []struct {
		s    *side
		zxid int64
	}{{r.a, zxidA}, {r.b, zxidB}} {
		if last := c.s.commits[len(c.s.commits)-1]; c.zxid <= last {
			return fmt.Errorf("change has zxid %x, the one before had %x", c.zxid, last)
		}
		c.s.commits = append(c.s.commits, c.zxid)
		c.s.high = max(c.s.high, c.zxid)
	}
	return nil
}

// checkEvents checks that an event's header holds -1 or the zxid of a change of the last steps.
func (r *Runner) checkEvents(first *Step, steps []*Step, seen map[string][]got, changes []int64) error {
	if !r.Exact {
		return nil
	}
	catchUp := slices.ContainsFunc(steps, func(s *Step) bool { return strings.HasPrefix(s.Op, "setWatches") })
	for name, list := range seen {
		for _, g := range list {
			if g.frame.Event == nil || g.end != nil || slices.Contains(changes, g.frame.Zxid) || catchUp &&
				g.frame.Zxid == -1 {
				continue
			}
			return &Difference{*first, name, "event of a change just made",
				fmt.Sprintf("event %+v has zxid %x; changes made: %x", *g.frame.Event, g.frame.Zxid, changes)}
		}
	}
	return nil
}

// sortEvents sorts each sequence of events, because the nodes of a closing session are deleted in any order.
func sortEvents(list []got) {
	for i := 0; i < len(list); i++ {
		k := i
		for k < len(list) && list[k].end == nil && list[k].frame.Event != nil {
			k++
		}
		slices.SortFunc(list[i:k], func(a, b got) int {
			x, y := a.frame.Event, b.frame.Event
			return cmp.Or(cmp.Compare(x.Path, y.Path), cmp.Compare(x.Type, y.Type))
		})
		i = max(i, k-1)
	}
}
