package client

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/zlockd/zlockd/client/zk"

	"github.com/zlockd/zlockd/client/fence"
)

// semaphore reads a semaphore: its permits, and the queue whose head waits for some.
func (in *inspector) semaphore(l Layout, names []string) error {
	in.q.Kind, in.q.Layout = "semaphore", l
	d, permits, locks := semLayoutOf(l, in.q.Path), "", ""
	if l == LayoutKazoo {
		locks = d.lock + "/" // beside the directory, not in it
	} else {
		permits, locks = permitsName+"/", "locks/"
		for _, n := range names {
			if n != "locks" && n != permitsName {
				in.q.Foreign = append(in.q.Foreign, n)
			}
		}
		var err error
		if names, err = in.e.children(in.ctx, d.leases); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	var held []contender
	for _, n := range names {
		c, _, ok := parseName(n)
		if !ok {
			c = contender{name: n}
		}
		if l == LayoutKazoo {
			c.maker = makerOf(n)
		}
		c.kind = kindLease
		held = append(held, c)
	}
	slices.SortFunc(held, compareContenders)
	if err := in.read(&in.q.Holders, permits, held); err != nil {
		return err
	}
	names, err := in.e.children(in.ctx, d.lock)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	q, _, err := queueOf(l, names, false)
	if err != nil {
		in.q.Mixed = true
		return nil
	}
	if err := in.read(&in.q.Waiters, locks, q); err != nil {
		return err
	}
	for i := range in.q.Waiters {
		w := &in.q.Waiters[i]
		w.Mode, w.Position = fence.Permit, i+1
		switch {
		case i > 0:
			w.BlockedBy = in.q.Waiters[i-1].Node
		case len(in.q.Holders) > 0:
			w.BlockedBy = in.q.Holders[0].Node
		}
	}
	return nil
}

// kazooLimit reads the limit of kazoo's semaphore, whose data are a number and whose
// children ids; 0 if it is none.
func kazooLimit(names []string, data []byte) int {
	n, err := strconv.Atoi(string(data))
	if err != nil || n < 1 || slices.ContainsFunc(names, func(name string) bool { _, ok := parseHex(name); return !ok }) {
		return 0
	}
	return n
}

// policy reads a lock with a policy.
func (in *inspector) policy(names []string, data []byte) error {
	in.q.Kind, in.q.Layout = "rwlock", LayoutPolicy
	rec, ok := parsePolicyRecord(data)
	if !ok {
		return fmt.Errorf("%w: %s", ErrMixedLayout, in.q.Path)
	}
	in.q.Policy = rec.Policy
	policy, _ := ParsePolicy(rec.Policy)
	v := &policyView{policy: policy, door: rec.door()}
	holds := map[nodeID]bool{}
	for _, name := range names {
		n, ok := parsePolicy(name)
		if !ok {
			in.q.Foreign = append(in.q.Foreign, name)
			continue
		}
		v.nodes = append(v.nodes, n)
		holds[n.id] = holds[n.id] || n.kind.hold()
	}
	var q []contender
	waits := map[string]string{}
	for i := range v.nodes {
		n := v.nodes[i]
		name := n.name(true)
		if !n.kind.hold() && holds[n.id] {
			continue // a writer keeps its place in the queue while it holds
		}
		c := contender{name: name, maker: makerSelf, kind: kindWrite, seq: n.seq}
		if n.kind == policyHoldRead || n.kind == policyQueueRead {
			c.kind = kindRead
		}
		if !n.kind.hold() {
			step := policyWrite(v, n.id)
			if c.kind == kindRead {
				step = policyRead(v, n.id, true)
			}
			waits[name] = "" // it will be granted in a moment
			if step.do == policyWait {
				waits[name] = step.on.name(true)
			}
		}
		q = append(q, c)
	}
	slices.SortStableFunc(q, compareContenders)
	if err := in.readQueue(q, waits); err != nil {
		return err
	}
	for i := range in.q.Holders {
		in.q.Holders[i].HeldSince = in.q.Holders[i].WaitingSince // made by the grant
	}
	return nil
}
