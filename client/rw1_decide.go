package client

// The rw1 layout separates queueing from holding. Queue nodes (q-…) say who
// came when, hold nodes (h-…) say who may act, and the data of the directory
// names the writer or upgrader for whom the gate is closed. This file decides
// what a contender does next, from the record, the list and its own state. It
// does no I/O and knows no clock: rw1.go carries the decisions out, and the
// explorer of the tests drives the same functions through every interleaving.
//
// Every decision rests on a list that is not older than the record: a list
// older than the record could miss the gate owner's node, and a closed gate
// would pass for a stale one.

// rw1Kind is the role of a node in an rw1 directory.
type rw1Kind uint8

const (
	rw1QueueRead  rw1Kind = iota + 1 // q-<uuid>-R-<seq>
	rw1QueueWrite                    // q-<uuid>-W-<seq>
	rw1HoldRead                      // h-<uuid>-R
	rw1HoldWrite                     // h-<uuid>-W
)

func (k rw1Kind) hold() bool { return k == rw1HoldRead || k == rw1HoldWrite }

// rw1Node is one parsed child of the directory.
type rw1Node struct {
	id   nodeID
	kind rw1Kind
	seq  int32 // queue nodes only
}

// rw1Gate is the mark in the record: whom the gate is closed for, and why.
// The zero value is no mark.
type rw1Gate struct {
	owner nodeID
	kind  rw1GateKind
}

type rw1GateKind uint8

const (
	rw1GateNone    rw1GateKind = iota
	rw1GateWrite               // a queued writer: lives with its q-W or h-W
	rw1GateUpgrade             // an upgrading reader: lives with its h-R or h-W
)

// rw1View is what a contender knows of the directory.
type rw1View struct {
	policy Policy
	gate   rw1Gate
	nodes  []rw1Node
	// overdue says that the oldest queued writer has waited longer than the
	// bound. Policy reader then turns fair, for readers and for that writer.
	overdue bool
}

// rw1Do is what to do next.
type rw1Do uint8

const (
	rw1Wait    rw1Do = iota + 1 // until step.on is gone, or as step.data and step.timer say
	rw1Enqueue                  // create the own queue node
	rw1Grant                    // run the grant's operations
	rw1Close                    // close the gate for oneself
	rw1Reopen                   // take one's mark back and decide again
	rw1Removed                  // somebody removed the own node
	rw1Clash                    // another reader is upgrading: neither can go on
)

// rw1Step is a decision.
type rw1Step struct {
	do    rw1Do
	on    rw1Node // rw1Wait: the node to watch
	data  bool    // rw1Wait: the record changing ends the wait too
	timer bool    // rw1Wait: so does the moment at which a writer is overdue
}

func rw1WaitOn(n *rw1Node) rw1Step { return rw1Step{do: rw1Wait, on: *n} }

// gateOwner returns the node that keeps the gate closed, nil if it is open. A
// mark whose owner has no such node is stale and means nothing: nobody needs to
// clean up after a crash. While a queued writer has both, its q-W is returned,
// which lives longer.
func (v *rw1View) gateOwner() *rw1Node {
	var hold *rw1Node
	for i := range v.nodes {
		n := &v.nodes[i]
		if v.gate.kind == rw1GateNone || n.id != v.gate.owner {
			continue
		}
		switch {
		case n.kind == rw1QueueWrite && v.gate.kind == rw1GateWrite:
			return n
		case n.kind == rw1HoldWrite, n.kind == rw1HoldRead && v.gate.kind == rw1GateUpgrade:
			hold = n
		}
	}
	return hold
}

// last returns the node with the highest sequence among those that f accepts.
func (v *rw1View) last(f func(*rw1Node) bool) *rw1Node {
	var last *rw1Node
	for i := range v.nodes {
		if n := &v.nodes[i]; f(n) && (last == nil || before(last.seq, n.seq)) {
			last = n
		}
	}
	return last
}

func (v *rw1View) find(id nodeID, kind rw1Kind) *rw1Node {
	return v.last(func(n *rw1Node) bool { return n.id == id && n.kind == kind })
}

// otherHold returns a hold node that is not id's, writes first.
func (v *rw1View) otherHold(id nodeID) *rw1Node {
	w := v.last(func(n *rw1Node) bool { return n.kind == rw1HoldWrite && n.id != id })
	if w != nil {
		return w
	}
	return v.last(func(n *rw1Node) bool { return n.kind == rw1HoldRead && n.id != id })
}

// fair says that order of arrival counts between readers and writers.
func (v *rw1View) fair() bool {
	return v.policy == PolicyFair || v.policy == PolicyReader && v.overdue
}

// rw1Read decides for a reader. queued says that it has a queue node.
func rw1Read(v *rw1View, id nodeID, queued bool) rw1Step {
	own := v.find(id, rw1QueueRead)
	if queued && own == nil {
		return rw1Step{do: rw1Removed}
	}
	owner := v.gateOwner()
	writer := v.last(func(n *rw1Node) bool { return n.kind == rw1HoldWrite })
	var ahead *rw1Node
	switch {
	case v.policy == PolicyWriter || v.fair() && own == nil:
		ahead = v.last(func(n *rw1Node) bool { return n.kind == rw1QueueWrite })
	case v.fair():
		ahead = v.last(func(n *rw1Node) bool { return n.kind == rw1QueueWrite && before(n.seq, own.seq) })
	}
	switch {
	case owner == nil && writer == nil && ahead == nil:
		return rw1Step{do: rw1Grant}
	case !queued:
		return rw1Step{do: rw1Enqueue}
	case owner != nil:
		// An upgrader's gate, and any gate of policy reader, may be opened again
		// while its owner's node stays.
		s := rw1WaitOn(owner)
		s.data = v.gate.kind == rw1GateUpgrade || v.policy == PolicyReader
		return s
	case writer != nil:
		return rw1WaitOn(writer)
	default:
		return rw1WaitOn(ahead)
	}
}

// rw1Write decides for a queued writer, before and after it closed the gate.
func rw1Write(v *rw1View, id nodeID) rw1Step {
	own := v.find(id, rw1QueueWrite)
	if own == nil {
		return rw1Step{do: rw1Removed}
	}
	if v.gate == (rw1Gate{id, rw1GateWrite}) {
		return rw1Drain(v, id)
	}
	ahead := v.last(func(n *rw1Node) bool {
		queued := n.kind == rw1QueueWrite || n.kind == rw1QueueRead && v.fair()
		return queued && before(n.seq, own.seq)
	})
	owner := v.gateOwner()
	var s rw1Step
	switch {
	case ahead != nil:
		s = rw1WaitOn(ahead)
	case owner != nil:
		s = rw1WaitOn(owner)
	case v.policy != PolicyReader || v.fair():
		return rw1Step{do: rw1Close}
	default:
		reader := v.otherHold(id)
		if reader == nil {
			reader = v.last(func(n *rw1Node) bool { return n.kind == rw1QueueRead })
		}
		if reader == nil {
			return rw1Step{do: rw1Close}
		}
		s = rw1WaitOn(reader)
	}
	s.timer = v.policy == PolicyReader && !v.overdue
	return s
}

// rw1Drain decides for a writer whose gate is closed: no reader can be granted
// any more, those that hold must go.
func rw1Drain(v *rw1View, id nodeID) rw1Step {
	hold := v.otherHold(id)
	switch {
	case hold == nil:
		return rw1Step{do: rw1Grant}
	case v.policy == PolicyReader && !v.fair() && hold.kind == rw1HoldRead:
		// Readers have precedence and one slipped in between our look and our
		// closing the gate: back behind it.
		return rw1Step{do: rw1Reopen}
	default:
		return rw1WaitOn(hold)
	}
}

// rw1Upgrade decides for a reader that wants to become the writer, ahead of
// all who wait. A queued writer's claim is taken over as long as it holds
// nothing: its own grant will fail at the version check.
func rw1Upgrade(v *rw1View, id nodeID) rw1Step {
	if v.find(id, rw1HoldRead) == nil {
		return rw1Step{do: rw1Removed}
	}
	if v.gate == (rw1Gate{id, rw1GateUpgrade}) {
		if hold := v.otherHold(id); hold != nil {
			return rw1WaitOn(hold)
		}
		return rw1Step{do: rw1Grant}
	}
	if owner := v.gateOwner(); owner != nil && v.gate.kind == rw1GateUpgrade {
		return rw1Step{do: rw1Clash}
	}
	if writer := v.last(func(n *rw1Node) bool { return n.kind == rw1HoldWrite }); writer != nil {
		// Cannot be while our h-R lives; waiting is the safe answer.
		return rw1WaitOn(writer)
	}
	return rw1Step{do: rw1Close}
}

// rw1Op is one operation of a transaction. Those on the record are run against
// the version the decision was made on.
type rw1Op struct {
	op   rw1OpCode
	node rw1Node
	gate rw1Gate // rw1SetGate
}

type rw1OpCode uint8

const (
	rw1CheckRecord rw1OpCode = iota + 1
	rw1CheckNode
	rw1Create
	rw1Delete
	rw1SetGate
)

// rw1ReadGrant: no gate was closed since the decision. Readers leave the
// version as it is and so never get into each other's way.
func rw1ReadGrant(id nodeID, queued bool) []rw1Op {
	ops := []rw1Op{{op: rw1CheckRecord}}
	if queued {
		ops = append(ops, rw1Op{op: rw1Delete, node: rw1Node{id: id, kind: rw1QueueRead}})
	}
	return append(ops, rw1Op{op: rw1Create, node: rw1Node{id: id, kind: rw1HoldRead}})
}

// rw1WriteGrant: the gate is still ours, and so is the queue node. Had an
// operator removed that, readers would rightly have taken the gate for stale.
// The queue node stays until release, so that readers who watch it wake once.
func rw1WriteGrant(id nodeID) []rw1Op {
	return []rw1Op{
		{op: rw1CheckRecord},
		{op: rw1CheckNode, node: rw1Node{id: id, kind: rw1QueueWrite}},
		{op: rw1Create, node: rw1Node{id: id, kind: rw1HoldWrite}},
	}
}

// rw1UpgradeGrant turns the read hold into the write hold.
func rw1UpgradeGrant(id nodeID) []rw1Op {
	return []rw1Op{
		{op: rw1CheckRecord},
		{op: rw1Delete, node: rw1Node{id: id, kind: rw1HoldRead}},
		{op: rw1Create, node: rw1Node{id: id, kind: rw1HoldWrite}},
	}
}

// rw1DowngradeOps turns the write hold of id into a read hold of fresh. The
// fresh id makes the gate's mark stale. queued: there is a q-W too.
func rw1DowngradeOps(id, fresh nodeID, queued bool) []rw1Op {
	ops := []rw1Op{{op: rw1Create, node: rw1Node{id: fresh, kind: rw1HoldRead}}}
	return append(ops, rw1ReleaseOps(id, rw1HoldWrite, queued)...)
}

// rw1ReleaseOps ends a hold. queued: there is a q-W too.
func rw1ReleaseOps(id nodeID, hold rw1Kind, queued bool) []rw1Op {
	ops := []rw1Op{{op: rw1Delete, node: rw1Node{id: id, kind: hold}}}
	if queued {
		ops = append(ops, rw1Op{op: rw1Delete, node: rw1Node{id: id, kind: rw1QueueWrite}})
	}
	return ops
}

// rw1CloseOps closes the gate for id.
func rw1CloseOps(id nodeID, kind rw1GateKind) []rw1Op {
	return []rw1Op{{op: rw1SetGate, gate: rw1Gate{id, kind}}}
}

// rw1ReopenOps takes the mark back.
func rw1ReopenOps() []rw1Op { return []rw1Op{{op: rw1SetGate}} }
