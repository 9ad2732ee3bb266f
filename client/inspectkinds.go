package client

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/zlockd/zlockd/client/zk"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
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
	var held []recipe.Contender
	for _, n := range names {
		c, _, ok := recipe.ParseName(n)
		if !ok {
			c = recipe.Contender{Name: n}
		}
		if l == LayoutKazoo {
			c.Maker = recipe.MakerOf(n)
		}
		c.Kind = recipe.RoleLease
		held = append(held, c)
	}
	slices.SortFunc(held, recipe.Compare)
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
	q, _, err := recipe.QueueOf(l, names, false)
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
	if err != nil || n < 1 || slices.ContainsFunc(names, func(name string) bool { _, ok := recipe.ParseHex(name); return !ok }) {
		return 0
	}
	return n
}

// policy reads a lock with a policy.
func (in *inspector) policy(names []string, data []byte) error {
	in.q.Kind, in.q.Layout = "rwlock", LayoutPolicy
	rec, ok := recipe.ParsePolicyRecord(data)
	if !ok {
		return fmt.Errorf("%w: %s", ErrMixedLayout, in.q.Path)
	}
	in.q.Policy = rec.Policy
	policy, _ := ParsePolicy(rec.Policy)
	v := &recipe.PolicyView{Policy: policy, Door: rec.Mark()}
	holds := map[recipe.ID]bool{}
	for _, name := range names {
		n, ok := recipe.ParsePolicyNode(name)
		if !ok {
			in.q.Foreign = append(in.q.Foreign, name)
			continue
		}
		v.Nodes = append(v.Nodes, n)
		holds[n.ID] = holds[n.ID] || n.Kind.Hold()
	}
	var q []recipe.Contender
	waits := map[string]string{}
	for i := range v.Nodes {
		n := v.Nodes[i]
		name := n.Name(true)
		if !n.Kind.Hold() && holds[n.ID] {
			continue // a writer keeps its place in the queue while it holds
		}
		c := recipe.Contender{Name: name, Maker: recipe.MakerSelf, Kind: recipe.RoleWrite, Seq: n.Seq}
		if n.Kind == recipe.HoldRead || n.Kind == recipe.QueueRead {
			c.Kind = recipe.RoleRead
		}
		if !n.Kind.Hold() {
			step := recipe.DecideWrite(v, n.ID)
			if c.Kind == recipe.RoleRead {
				step = recipe.DecideRead(v, n.ID, true)
			}
			waits[name] = "" // it will be granted in a moment
			if step.Do == recipe.Wait {
				waits[name] = step.On.Name(true)
			}
		}
		q = append(q, c)
	}
	slices.SortStableFunc(q, recipe.Compare)
	if err := in.readQueue(q, waits); err != nil {
		return err
	}
	for i := range in.q.Holders {
		in.q.Holders[i].HeldSince = in.q.Holders[i].WaitingSince // made by the grant
	}
	return nil
}
