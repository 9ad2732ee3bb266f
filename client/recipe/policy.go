package recipe

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

// PolicyRole is the role of a node in the directory of a policy lock.
type PolicyRole uint8

const (
	QueueRead  PolicyRole = iota + 1 // q-<uuid>-R-<seq>
	QueueWrite                       // q-<uuid>-W-<seq>
	HoldRead                         // h-<uuid>-R
	HoldWrite                        // h-<uuid>-W
)

func (k PolicyRole) Hold() bool { return k == HoldRead || k == HoldWrite }

// PolicyNode is one parsed child of the directory.
type PolicyNode struct {
	ID   ID
	Kind PolicyRole
	Seq  int32 // queue nodes only
}

// Door is the mark in the record: whom the door is closed for, and why.
// The zero value is no mark.
type Door struct {
	Owner ID
	Kind  DoorKind
}

type DoorKind uint8

const (
	DoorOpen    DoorKind = iota
	DoorWrite            // a queued writer: lives with its q-W or h-W
	DoorUpgrade          // an upgrading reader: lives with its h-R or h-W
)

// PolicyView is what a contender knows of the directory.
type PolicyView struct {
	Policy Policy
	Door   Door
	Nodes  []PolicyNode
	// Overdue says that the oldest queued writer has waited longer than the
	// bound. Policy reader then turns fair, for readers and for that writer.
	Overdue bool
}

// Do is what to do next.
type Do uint8

const (
	Wait       Do = iota + 1 // until step.on is gone, or as step.data and step.timer say
	Enqueue                  // create the own queue node
	Grant                    // run the grant's operations
	CloseDoor                // close the door for oneself
	ReopenDoor               // take one's mark back and decide again
	Removed                  // somebody removed the own node
	Clash                    // another reader is upgrading: neither can go on
)

// Step is a decision.
type Step struct {
	Do    Do
	On    PolicyNode // policyWait: the node to watch
	Data  bool       // policyWait: the record changing ends the wait too
	Timer bool       // policyWait: so does the moment at which a writer is overdue
}

func waitOn(n *PolicyNode) Step { return Step{Do: Wait, On: *n} }

// DoorOwner returns the node that keeps the door closed, nil if it is open. A
// mark whose owner has no such node is stale and means nothing: nobody needs to
// clean up after a crash. While a queued writer has both, its q-W is returned,
// which lives longer.
func (v *PolicyView) DoorOwner() *PolicyNode {
	var hold *PolicyNode
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if v.Door.Kind == DoorOpen || n.ID != v.Door.Owner {
			continue
		}
		switch {
		case n.Kind == QueueWrite && v.Door.Kind == DoorWrite:
			return n
		case n.Kind == HoldWrite, n.Kind == HoldRead && v.Door.Kind == DoorUpgrade:
			hold = n
		}
	}
	return hold
}

// last returns the node with the highest sequence among those that f accepts.
func (v *PolicyView) last(f func(*PolicyNode) bool) *PolicyNode {
	var last *PolicyNode
	for i := range v.Nodes {
		if n := &v.Nodes[i]; f(n) && (last == nil || Before(last.Seq, n.Seq)) {
			last = n
		}
	}
	return last
}

func (v *PolicyView) find(id ID, kind PolicyRole) *PolicyNode {
	return v.last(func(n *PolicyNode) bool { return n.ID == id && n.Kind == kind })
}

// OtherHold returns a hold node that is not id's, writes first.
func (v *PolicyView) OtherHold(id ID) *PolicyNode {
	w := v.last(func(n *PolicyNode) bool { return n.Kind == HoldWrite && n.ID != id })
	if w != nil {
		return w
	}
	return v.last(func(n *PolicyNode) bool { return n.Kind == HoldRead && n.ID != id })
}

// OldestWriter returns the queued writer that waits longest.
func (v *PolicyView) OldestWriter() *PolicyNode {
	var oldest *PolicyNode
	for i := range v.Nodes {
		if n := &v.Nodes[i]; n.Kind == QueueWrite && (oldest == nil || Before(n.Seq, oldest.Seq)) {
			oldest = n
		}
	}
	return oldest
}

// fair says that order of arrival counts between readers and writers.
func (v *PolicyView) fair() bool {
	return v.Policy == PolicyFair || v.Policy == PolicyReader && v.Overdue
}

// DecideRead decides for a reader. queued says that it has a queue node.
func DecideRead(v *PolicyView, id ID, queued bool) Step {
	own := v.find(id, QueueRead)
	if queued && own == nil {
		return Step{Do: Removed}
	}
	owner := v.DoorOwner()
	writer := v.last(func(n *PolicyNode) bool { return n.Kind == HoldWrite })
	var ahead *PolicyNode
	switch {
	case v.Policy == PolicyWriter || v.fair() && own == nil:
		ahead = v.last(func(n *PolicyNode) bool { return n.Kind == QueueWrite })
	case v.fair():
		ahead = v.last(func(n *PolicyNode) bool { return n.Kind == QueueWrite && Before(n.Seq, own.Seq) })
	}
	switch {
	case owner == nil && writer == nil && ahead == nil:
		return Step{Do: Grant}
	case !queued:
		return Step{Do: Enqueue}
	case owner != nil:
		// An upgrader's door, and any door of policy reader, may be opened again
		// while its owner's node stays.
		s := waitOn(owner)
		s.Data = v.Door.Kind == DoorUpgrade || v.Policy == PolicyReader
		return s
	case writer != nil:
		return waitOn(writer)
	default:
		return waitOn(ahead)
	}
}

// DecideWrite decides for a queued writer, before and after it closed the door.
func DecideWrite(v *PolicyView, id ID) Step {
	own := v.find(id, QueueWrite)
	if own == nil {
		return Step{Do: Removed}
	}
	if v.Door == (Door{id, DoorWrite}) {
		return drain(v, id)
	}
	ahead := v.last(func(n *PolicyNode) bool {
		queued := n.Kind == QueueWrite || n.Kind == QueueRead && v.fair()
		return queued && Before(n.Seq, own.Seq)
	})
	owner := v.DoorOwner()
	var s Step
	switch {
	case ahead != nil:
		s = waitOn(ahead)
	case owner != nil:
		s = waitOn(owner)
	case v.Policy != PolicyReader || v.fair():
		return Step{Do: CloseDoor}
	default:
		reader := v.OtherHold(id)
		if reader == nil {
			reader = v.last(func(n *PolicyNode) bool { return n.Kind == QueueRead })
		}
		if reader == nil {
			return Step{Do: CloseDoor}
		}
		s = waitOn(reader)
	}
	s.Timer = v.Policy == PolicyReader && !v.Overdue
	return s
}

// drain decides for a writer whose door is closed: no reader can be granted
// any more, those that hold must go.
func drain(v *PolicyView, id ID) Step {
	hold := v.OtherHold(id)
	switch {
	case hold == nil:
		return Step{Do: Grant}
	case v.Policy == PolicyReader && !v.fair() && hold.Kind == HoldRead:
		// Readers have precedence and one slipped in between our look and our
		// closing the door: back behind it.
		return Step{Do: ReopenDoor}
	default:
		return waitOn(hold)
	}
}

// DecideUpgrade decides for a reader that wants to become the writer, ahead of
// all who wait. A queued writer's claim is taken over as long as it holds
// nothing: its own grant will fail at the version check.
func DecideUpgrade(v *PolicyView, id ID) Step {
	if v.find(id, HoldRead) == nil {
		return Step{Do: Removed}
	}
	if v.Door == (Door{id, DoorUpgrade}) {
		if hold := v.OtherHold(id); hold != nil {
			return waitOn(hold)
		}
		return Step{Do: Grant}
	}
	if owner := v.DoorOwner(); owner != nil && v.Door.Kind == DoorUpgrade {
		return Step{Do: Clash}
	}
	if writer := v.last(func(n *PolicyNode) bool { return n.Kind == HoldWrite }); writer != nil {
		// Cannot be while our h-R lives; waiting is the safe answer.
		return waitOn(writer)
	}
	return Step{Do: CloseDoor}
}

// Op is one operation of a transaction. Those on the record are run against
// the version the decision was made on.
type Op struct {
	Op   OpCode
	Node PolicyNode // not of CheckRecord
}

type OpCode uint8

const (
	CheckRecord OpCode = iota + 1
	CheckNode
	CreateNode
	DeleteNode
)

// ReadGrant: no door was closed since the decision. Readers leave the
// version as it is and so never get into each other's way.
func ReadGrant(id ID, queued bool) []Op {
	ops := []Op{{Op: CheckRecord}}
	if queued {
		ops = append(ops, Op{Op: DeleteNode, Node: PolicyNode{ID: id, Kind: QueueRead}})
	}
	return append(ops, Op{Op: CreateNode, Node: PolicyNode{ID: id, Kind: HoldRead}})
}

// WriteGrant: the door is still ours, and so is the queue node. Had an
// operator removed that, readers would rightly have taken the door for stale.
// The queue node stays until release, so that readers who watch it wake once.
func WriteGrant(id ID) []Op {
	return []Op{
		{Op: CheckRecord},
		{Op: CheckNode, Node: PolicyNode{ID: id, Kind: QueueWrite}},
		{Op: CreateNode, Node: PolicyNode{ID: id, Kind: HoldWrite}},
	}
}

// UpgradeGrant turns the read hold into the write hold.
func UpgradeGrant(id ID) []Op {
	return []Op{
		{Op: CheckRecord},
		{Op: DeleteNode, Node: PolicyNode{ID: id, Kind: HoldRead}},
		{Op: CreateNode, Node: PolicyNode{ID: id, Kind: HoldWrite}},
	}
}
