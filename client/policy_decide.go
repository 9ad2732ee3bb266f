package client

// The policy layout, "rw1" on disk, separates queueing from holding. Queue nodes (q-…) say who
// came when, hold nodes (h-…) say who may act, and the data of the directory
// names the writer or upgrader for whom the door is closed. This file decides
// what a contender does next, from the record, the list and its own state. It
// does no I/O and knows no clock: policy.go carries the decisions out, and the
// explorer of the tests drives the same functions through every interleaving.
//
// Every decision rests on a list that is not older than the record: a list
// older than the record could miss the door owner's node, and a closed door
// would pass for a stale one.

// policyKind is the role of a node in the directory of a policy lock.
type policyKind uint8

const (
	policyQueueRead  policyKind = iota + 1 // q-<uuid>-R-<seq>
	policyQueueWrite                       // q-<uuid>-W-<seq>
	policyHoldRead                         // h-<uuid>-R
	policyHoldWrite                        // h-<uuid>-W
)

func (k policyKind) hold() bool { return k == policyHoldRead || k == policyHoldWrite }

// policyNode is one parsed child of the directory.
type policyNode struct {
	id   nodeID
	kind policyKind
	seq  int32 // queue nodes only
}

// policyDoor is the mark in the record: whom the door is closed for, and why.
// The zero value is no mark.
type policyDoor struct {
	owner nodeID
	kind  policyDoorKind
}

type policyDoorKind uint8

const (
	policyDoorNone    policyDoorKind = iota
	policyDoorWrite                  // a queued writer: lives with its q-W or h-W
	policyDoorUpgrade                // an upgrading reader: lives with its h-R or h-W
)

// policyView is what a contender knows of the directory.
type policyView struct {
	policy Policy
	door   policyDoor
	nodes  []policyNode
	// overdue says that the oldest queued writer has waited longer than the
	// bound. Policy reader then turns fair, for readers and for that writer.
	overdue bool
}

// policyDo is what to do next.
type policyDo uint8

const (
	policyWait    policyDo = iota + 1 // until step.on is gone, or as step.data and step.timer say
	policyEnqueue                     // create the own queue node
	policyGrant                       // run the grant's operations
	policyClose                       // close the door for oneself
	policyReopen                      // take one's mark back and decide again
	policyRemoved                     // somebody removed the own node
	policyClash                       // another reader is upgrading: neither can go on
)

// policyStep is a decision.
type policyStep struct {
	do    policyDo
	on    policyNode // policyWait: the node to watch
	data  bool       // policyWait: the record changing ends the wait too
	timer bool       // policyWait: so does the moment at which a writer is overdue
}

func policyWaitOn(n *policyNode) policyStep { return policyStep{do: policyWait, on: *n} }

// doorOwner returns the node that keeps the door closed, nil if it is open. A
// mark whose owner has no such node is stale and means nothing: nobody needs to
// clean up after a crash. While a queued writer has both, its q-W is returned,
// which lives longer.
func (v *policyView) doorOwner() *policyNode {
	var hold *policyNode
	for i := range v.nodes {
		n := &v.nodes[i]
		if v.door.kind == policyDoorNone || n.id != v.door.owner {
			continue
		}
		switch {
		case n.kind == policyQueueWrite && v.door.kind == policyDoorWrite:
			return n
		case n.kind == policyHoldWrite, n.kind == policyHoldRead && v.door.kind == policyDoorUpgrade:
			hold = n
		}
	}
	return hold
}

// last returns the node with the highest sequence among those that f accepts.
func (v *policyView) last(f func(*policyNode) bool) *policyNode {
	var last *policyNode
	for i := range v.nodes {
		if n := &v.nodes[i]; f(n) && (last == nil || before(last.seq, n.seq)) {
			last = n
		}
	}
	return last
}

func (v *policyView) find(id nodeID, kind policyKind) *policyNode {
	return v.last(func(n *policyNode) bool { return n.id == id && n.kind == kind })
}

// otherHold returns a hold node that is not id's, writes first.
func (v *policyView) otherHold(id nodeID) *policyNode {
	w := v.last(func(n *policyNode) bool { return n.kind == policyHoldWrite && n.id != id })
	if w != nil {
		return w
	}
	return v.last(func(n *policyNode) bool { return n.kind == policyHoldRead && n.id != id })
}

// fair says that order of arrival counts between readers and writers.
func (v *policyView) fair() bool {
	return v.policy == PolicyFair || v.policy == PolicyReader && v.overdue
}

// policyRead decides for a reader. queued says that it has a queue node.
func policyRead(v *policyView, id nodeID, queued bool) policyStep {
	own := v.find(id, policyQueueRead)
	if queued && own == nil {
		return policyStep{do: policyRemoved}
	}
	owner := v.doorOwner()
	writer := v.last(func(n *policyNode) bool { return n.kind == policyHoldWrite })
	var ahead *policyNode
	switch {
	case v.policy == PolicyWriter || v.fair() && own == nil:
		ahead = v.last(func(n *policyNode) bool { return n.kind == policyQueueWrite })
	case v.fair():
		ahead = v.last(func(n *policyNode) bool { return n.kind == policyQueueWrite && before(n.seq, own.seq) })
	}
	switch {
	case owner == nil && writer == nil && ahead == nil:
		return policyStep{do: policyGrant}
	case !queued:
		return policyStep{do: policyEnqueue}
	case owner != nil:
		// An upgrader's door, and any door of policy reader, may be opened again
		// while its owner's node stays.
		s := policyWaitOn(owner)
		s.data = v.door.kind == policyDoorUpgrade || v.policy == PolicyReader
		return s
	case writer != nil:
		return policyWaitOn(writer)
	default:
		return policyWaitOn(ahead)
	}
}

// policyWrite decides for a queued writer, before and after it closed the door.
func policyWrite(v *policyView, id nodeID) policyStep {
	own := v.find(id, policyQueueWrite)
	if own == nil {
		return policyStep{do: policyRemoved}
	}
	if v.door == (policyDoor{id, policyDoorWrite}) {
		return policyDrain(v, id)
	}
	ahead := v.last(func(n *policyNode) bool {
		queued := n.kind == policyQueueWrite || n.kind == policyQueueRead && v.fair()
		return queued && before(n.seq, own.seq)
	})
	owner := v.doorOwner()
	var s policyStep
	switch {
	case ahead != nil:
		s = policyWaitOn(ahead)
	case owner != nil:
		s = policyWaitOn(owner)
	case v.policy != PolicyReader || v.fair():
		return policyStep{do: policyClose}
	default:
		reader := v.otherHold(id)
		if reader == nil {
			reader = v.last(func(n *policyNode) bool { return n.kind == policyQueueRead })
		}
		if reader == nil {
			return policyStep{do: policyClose}
		}
		s = policyWaitOn(reader)
	}
	s.timer = v.policy == PolicyReader && !v.overdue
	return s
}

// policyDrain decides for a writer whose door is closed: no reader can be granted
// any more, those that hold must go.
func policyDrain(v *policyView, id nodeID) policyStep {
	hold := v.otherHold(id)
	switch {
	case hold == nil:
		return policyStep{do: policyGrant}
	case v.policy == PolicyReader && !v.fair() && hold.kind == policyHoldRead:
		// Readers have precedence and one slipped in between our look and our
		// closing the door: back behind it.
		return policyStep{do: policyReopen}
	default:
		return policyWaitOn(hold)
	}
}

// policyUpgrade decides for a reader that wants to become the writer, ahead of
// all who wait. A queued writer's claim is taken over as long as it holds
// nothing: its own grant will fail at the version check.
func policyUpgrade(v *policyView, id nodeID) policyStep {
	if v.find(id, policyHoldRead) == nil {
		return policyStep{do: policyRemoved}
	}
	if v.door == (policyDoor{id, policyDoorUpgrade}) {
		if hold := v.otherHold(id); hold != nil {
			return policyWaitOn(hold)
		}
		return policyStep{do: policyGrant}
	}
	if owner := v.doorOwner(); owner != nil && v.door.kind == policyDoorUpgrade {
		return policyStep{do: policyClash}
	}
	if writer := v.last(func(n *policyNode) bool { return n.kind == policyHoldWrite }); writer != nil {
		// Cannot be while our h-R lives; waiting is the safe answer.
		return policyWaitOn(writer)
	}
	return policyStep{do: policyClose}
}

// policyOp is one operation of a transaction. Those on the record are run against
// the version the decision was made on.
type policyOp struct {
	op   policyOpCode
	node policyNode // not of policyCheckRecord
}

type policyOpCode uint8

const (
	policyCheckRecord policyOpCode = iota + 1
	policyCheckNode
	policyCreate
	policyDelete
)

// policyReadGrant: no door was closed since the decision. Readers leave the
// version as it is and so never get into each other's way.
func policyReadGrant(id nodeID, queued bool) []policyOp {
	ops := []policyOp{{op: policyCheckRecord}}
	if queued {
		ops = append(ops, policyOp{op: policyDelete, node: policyNode{id: id, kind: policyQueueRead}})
	}
	return append(ops, policyOp{op: policyCreate, node: policyNode{id: id, kind: policyHoldRead}})
}

// policyWriteGrant: the door is still ours, and so is the queue node. Had an
// operator removed that, readers would rightly have taken the door for stale.
// The queue node stays until release, so that readers who watch it wake once.
func policyWriteGrant(id nodeID) []policyOp {
	return []policyOp{
		{op: policyCheckRecord},
		{op: policyCheckNode, node: policyNode{id: id, kind: policyQueueWrite}},
		{op: policyCreate, node: policyNode{id: id, kind: policyHoldWrite}},
	}
}

// policyUpgradeGrant turns the read hold into the write hold.
func policyUpgradeGrant(id nodeID) []policyOp {
	return []policyOp{
		{op: policyCheckRecord},
		{op: policyDelete, node: policyNode{id: id, kind: policyHoldRead}},
		{op: policyCreate, node: policyNode{id: id, kind: policyHoldWrite}},
	}
}
