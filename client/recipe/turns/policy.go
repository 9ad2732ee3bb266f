package turns

import "github.com/zlockd/zlockd/client/recipe"

// This file decides what a contender of a lock with a policy does next, from the record, the list and the
// contender's own state. It does no I/O and reads no clock: policy.go of package client/internal/take carries
// out the decisions, and the explorer of the tests runs the same functions in every order.
//
// Every decision needs a list that is not older than the record. An older list could lack the door owner's
// node, and the closed door would look stale.

// PolicyView is a contender's view of the directory.
type PolicyView struct {
	Policy recipe.Policy
	Door   recipe.Door
	Nodes  []recipe.PolicyNode
	// Overdue says that the contender is a writer that has waited longer than readers may overtake it. Under
	// PolicyReader this writer closes the door, so that readers no longer overtake it.
	Overdue bool
}

// Do is the next action of a contender.
type Do uint8

const (
	Wait       Do = iota + 1 // wait until Step.On is gone, or until the event that Step.Data or Step.Timer names
	Enqueue                  // create this contender's queue node
	Grant                    // run the grant's operations
	CloseDoor                // close the door for this contender
	ReopenDoor               // open the door that this contender closed, and decide again
	Removed                  // another client removed this contender's node
	Clash                    // another reader is upgrading too: both would wait forever
)

// Step is a decision.
type Step struct {
	Do    Do
	On    recipe.PolicyNode // Wait: the node to watch
	Data  bool              // Wait: a change of the record also ends the wait
	Timer bool              // Wait: the moment at which a writer is overdue also ends the wait
}

func waitOn(n *recipe.PolicyNode) Step { return Step{Do: Wait, On: *n} }

// DoorOwner returns the node that keeps the door closed. It returns nil if the door is open. A mark whose
// owner has no such node is stale and has no effect, so no client needs to clean up after a crash. If a
// writer has a queue node and a hold node, DoorOwner returns the queue node, which lasts longer.
func (v *PolicyView) DoorOwner() *recipe.PolicyNode {
	var hold *recipe.PolicyNode
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if v.Door.Kind == recipe.DoorOpen || n.ID != v.Door.Owner {
			continue
		}
		switch {
		case n.Kind == recipe.QueueWrite && v.Door.Kind == recipe.DoorWrite:
			return n
		case n.Kind == recipe.HoldWrite, n.Kind == recipe.HoldRead && v.Door.Kind == recipe.DoorUpgrade:
			hold = n
		}
	}
	return hold
}

// last() returns the node with the highest sequence number among the nodes that f accepts.
func (v *PolicyView) last(f func(*recipe.PolicyNode) bool) *recipe.PolicyNode {
	var last *recipe.PolicyNode
	for i := range v.Nodes {
		if n := &v.Nodes[i]; f(n) && (last == nil || recipe.Before(last.Seq, n.Seq)) {
			last = n
		}
	}
	return last
}

func (v *PolicyView) find(id recipe.ID, kind recipe.PolicyRole) *recipe.PolicyNode {
	return v.last(func(n *recipe.PolicyNode) bool { return n.ID == id && n.Kind == kind })
}

// OtherHold returns a hold node whose id is not `id`. It prefers a write hold.
func (v *PolicyView) OtherHold(id recipe.ID) *recipe.PolicyNode {
	w := v.last(func(n *recipe.PolicyNode) bool { return n.Kind == recipe.HoldWrite && n.ID != id })
	if w != nil {
		return w
	}
	return v.last(func(n *recipe.PolicyNode) bool { return n.Kind == recipe.HoldRead && n.ID != id })
}

// fair reports whether a writer waits only for the readers that came before it.
func (v *PolicyView) fair() bool {
	return v.Policy == recipe.PolicyFair || v.Policy == recipe.PolicyReader && v.Overdue
}

// DecideRead decides for a reader. The argument `queued` says whether it has a queue node.
func DecideRead(v *PolicyView, id recipe.ID, queued bool) Step {
	own := v.find(id, recipe.QueueRead)
	if queued && own == nil {
		return Step{Do: Removed}
	}
	owner := v.DoorOwner()
	writer := v.last(func(n *recipe.PolicyNode) bool { return n.Kind == recipe.HoldWrite })
	var ahead *recipe.PolicyNode
	switch {
	case v.Policy == recipe.PolicyWriter || v.Policy == recipe.PolicyFair && own == nil:
		ahead = v.last(func(n *recipe.PolicyNode) bool { return n.Kind == recipe.QueueWrite })
	case v.Policy == recipe.PolicyFair:
		ahead = v.last(func(n *recipe.PolicyNode) bool {
			return n.Kind == recipe.QueueWrite && recipe.Before(n.Seq, own.Seq)
		})
	}
	switch {
	case owner == nil && writer == nil && ahead == nil:
		return Step{Do: Grant}
	case !queued:
		return Step{Do: Enqueue}
	case owner != nil:
		// The door may open again although the node of its owner still exists: under PolicyReader, or if the owner
		// gives up its upgrade. So the reader also waits for a change of the record.
		s := waitOn(owner)
		s.Data = v.Door.Kind == recipe.DoorUpgrade || v.Policy == recipe.PolicyReader
		return s
	case writer != nil:
		return waitOn(writer)
	default:
		return waitOn(ahead)
	}
}

// DecideWrite decides for a queued writer, before and after it has closed the door.
func DecideWrite(v *PolicyView, id recipe.ID) Step {
	own := v.find(id, recipe.QueueWrite)
	if own == nil {
		return Step{Do: Removed}
	}
	if v.Door == (recipe.Door{Owner: id, Kind: recipe.DoorWrite}) {
		return drain(v, id)
	}
	ahead := v.last(func(n *recipe.PolicyNode) bool {
		queued := n.Kind == recipe.QueueWrite || n.Kind == recipe.QueueRead && v.fair()
		return queued && recipe.Before(n.Seq, own.Seq)
	})
	owner := v.DoorOwner()
	var s Step
	switch {
	case ahead != nil:
		s = waitOn(ahead)
	case owner != nil:
		s = waitOn(owner)
	case v.Policy != recipe.PolicyReader || v.fair():
		return Step{Do: CloseDoor}
	default:
		reader := v.OtherHold(id)
		if reader == nil {
			reader = v.last(func(n *recipe.PolicyNode) bool { return n.Kind == recipe.QueueRead })
		}
		if reader == nil {
			return Step{Do: CloseDoor}
		}
		s = waitOn(reader)
	}
	s.Timer = v.Policy == recipe.PolicyReader && !v.Overdue
	return s
}

// drain() decides for a writer that has closed the door. No more readers get the lock, and the writer waits
// for the readers that hold it.
func drain(v *PolicyView, id recipe.ID) Step {
	hold := v.OtherHold(id)
	switch {
	case hold == nil:
		return Step{Do: Grant}
	case v.Policy == recipe.PolicyReader && !v.fair() && hold.Kind == recipe.HoldRead:
		// A reader got the lock just before this writer closed the door, and under this policy readers go first. So
		// open the door again and wait for that reader.
		return Step{Do: ReopenDoor}
	default:
		return waitOn(hold)
	}
}

// DecideUpgrade decides for a reader that wants to become the writer, ahead of all waiters. It takes the door
// over from a queued writer that does not hold the lock yet. The grant of that writer then fails, because the
// version of the record has changed.
func DecideUpgrade(v *PolicyView, id recipe.ID) Step {
	if v.find(id, recipe.HoldRead) == nil {
		return Step{Do: Removed}
	}
	if v.Door == (recipe.Door{Owner: id, Kind: recipe.DoorUpgrade}) {
		if hold := v.OtherHold(id); hold != nil {
			return waitOn(hold)
		}
		return Step{Do: Grant}
	}
	if owner := v.DoorOwner(); owner != nil && v.Door.Kind == recipe.DoorUpgrade {
		return Step{Do: Clash}
	}
	if writer := v.last(func(n *recipe.PolicyNode) bool { return n.Kind == recipe.HoldWrite }); writer != nil {
		// This cannot happen while this reader's own hold node exists; to wait is safe.
		return waitOn(writer)
	}
	return Step{Do: CloseDoor}
}

// GrantTxn is the transaction of a grant. It fails if the record is not the one that the decision saw, or if
// the node in Check or Delete does not exist. A field whose Kind is 0 is not part of the transaction.
type GrantTxn struct{ Check, Delete, Create recipe.PolicyNode }

// ReadGrant returns the grant of a reader. Readers do not change the version of the record, so they never
// disturb each other.
func ReadGrant(id recipe.ID, queued bool) GrantTxn {
	txn := GrantTxn{Create: recipe.PolicyNode{ID: id, Kind: recipe.HoldRead}}
	if queued {
		txn.Delete = recipe.PolicyNode{ID: id, Kind: recipe.QueueRead}
	}
	return txn
}

// WriteGrant returns the grant of a writer. It checks the queue node: if an operator has removed that node,
// readers rightly ignore the door. The queue node stays until release, so that readers that watch it wake
// only once.
func WriteGrant(id recipe.ID) GrantTxn {
	return GrantTxn{Check: recipe.PolicyNode{ID: id, Kind: recipe.QueueWrite},
		Create: recipe.PolicyNode{ID: id, Kind: recipe.HoldWrite}}
}

// UpgradeGrant returns the grant that turns the read hold into the write hold.
func UpgradeGrant(id recipe.ID) GrantTxn {
	return GrantTxn{Delete: recipe.PolicyNode{ID: id, Kind: recipe.HoldRead},
		Create: recipe.PolicyNode{ID: id, Kind: recipe.HoldWrite}}
}
