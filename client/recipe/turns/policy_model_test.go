package turns

import (
	"fmt"
	"strings"

	"github.com/zlockd/zlockd/client/recipe"
)

// The explorer runs the decision functions of policy.go through every interleaving of three clients and an
// in-memory directory. It models only these steps of the driver: read the record, list, decide, carry out,
// watch. Between any two steps of a client, every other client may take a step.

// xProgram is what a client wants.
type xProgram uint8

const (
	xRead xProgram = iota
	xWrite
	xReadUpgrade
	xReadCancelledUpgrade // gives up at any moment of the upgrade
	xWriteDowngrade
	xTryRead
	xTryWrite
	xPrograms
)

func (p xProgram) writes() bool { return p == xWrite || p == xWriteDowngrade || p == xTryWrite }

// tries() reports whether the program gives up where others would wait.
func (p xProgram) tries() bool { return p == xTryRead || p == xTryWrite }

func (p xProgram) String() string {
	return [...]string{"read", "write", "upgrade", "cancelled-upgrade", "downgrade", "try-read",
		"try-write"}[p]
}

// xMutation is a deliberate fault that the explorer must find.
type xMutation uint8

const (
	xFaithful xMutation = iota
	xListBeforeRecord
	xNoQueueCheck // the write grant does not check the queue node
	xNoDataWatch
	xStays // a contender that may not wait is refused, but keeps its place
)

// xGiveUp is what a contender does that is refused because it may not wait. Package client decides that, not
// a function of this package.
const xGiveUp Do = 100

// The stages of a client.
const (
	xAtRecord uint8 = iota
	xAtList
	xAtAct
	xAtArm
	xAsleep
	xHeld
	xDone
	xDead
)

// The purposes of a client's attempt.
const (
	xAcquire uint8 = iota
	xUpgrade
	xLast // the client holds the lock, and will only release it
)

// The nodes of one client, as bits. A second attempt after a removal has its own nodes.
const (
	xQueue = iota
	xHoldR
	xHoldW
	xAttempt       // number of nodes of one attempt
	xFresh     = 6 // the read hold of a downgrade
	xPerClient = 7
)

type xClient struct {
	at, phase uint8
	attempt   uint8
	queued    bool
	known     bool  // the record has not changed since the client read it
	door      uint8 // the mark in the record that the client read
	list      uint32
	do        Do
	on        uint8
	data      bool
	timer     bool
}

type xState struct {
	nodes   uint32
	order   [6]uint8 // queue nodes, in the order of their creation
	door    uint8    // the mark of the door, packed by xDoor
	overdue bool
	faulted bool
	c       [3]xClient
}

// xDoor packs a mark: kind, client and attempt.
func xDoor(kind recipe.DoorKind, client int, attempt uint8) uint8 {
	return uint8(kind)<<4 | uint8(client)<<1 | attempt
}

type xModel struct {
	policy   recipe.Policy
	bounded  bool // with PolicyReader, writers may become overdue at any moment
	programs [3]xProgram
	mutation xMutation
	requeue  bool // an operator removes places, and no client crashes
}

func xID(client int, attempt uint8) recipe.ID { return recipe.ID{byte(client + 1), attempt} }

func (m *xModel) node(bit int) recipe.PolicyNode {
	client, local := bit/xPerClient, bit%xPerClient
	if local == xFresh {
		return recipe.PolicyNode{ID: recipe.ID{byte(client + 1), 2}, Kind: recipe.HoldRead}
	}
	n := recipe.PolicyNode{ID: xID(client, uint8(local/xAttempt))}
	switch local % xAttempt {
	case xQueue:
		n.Kind = recipe.QueueRead
		if m.programs[client].writes() {
			n.Kind = recipe.QueueWrite
		}
	case xHoldR:
		n.Kind = recipe.HoldRead
	case xHoldW:
		n.Kind = recipe.HoldWrite
	}
	return n
}

// bit() returns the number of the bit for n. It is the inverse of node().
func (m *xModel) bit(n recipe.PolicyNode) int {
	base := int(n.ID[0]-1) * xPerClient
	if n.ID[1] == 2 {
		return base + xFresh
	}
	base += int(n.ID[1]) * xAttempt
	switch n.Kind {
	case recipe.HoldRead:
		return base + xHoldR
	case recipe.HoldWrite:
		return base + xHoldW
	}
	return base + xQueue
}

// alone() reports whether all nodes in the list belong to client c.
func alone(list uint32, c int) bool { return list&^((1<<xPerClient-1)<<(c*xPerClient)) == 0 }

// After the client's place was removed, removed() starts a new attempt of the client, at the end of the
// queue.
func (s *xState) removed(c int) {
	if s.c[c].attempt != 0 {
		panic("removed twice")
	}
	s.c[c] = xClient{attempt: 1}
}

// endUpgrade goes back to the read hold, and opens the door if it was closed for the upgrade.
func (s *xState) endUpgrade(c int) {
	me := &s.c[c]
	if s.door == xDoor(recipe.DoorUpgrade, c, me.attempt) {
		s.setDoor(c, 0)
	}
	*me = xClient{at: xHeld, phase: xLast, attempt: me.attempt}
}

func (s *xState) setDoor(c int, door uint8) {
	s.door = door
	for i := range s.c {
		s.c[i].known = i == c
	}
	s.c[c].door = door
}

// overlap() checks the safety property: a write hold is alone.
func (m *xModel) overlap(s xState) error {
	var writers, holders int
	for c := range 3 {
		own := s.nodes >> (c * xPerClient)
		const w = 1<<xHoldW | 1<<(xHoldW+xAttempt)
		const r = 1<<xHoldR | 1<<(xHoldR+xAttempt) | 1<<xFresh
		if own&w != 0 {
			writers++
		}
		if own&(w|r) != 0 {
			holders++
		}
	}
	if writers > 0 && holders > 1 {
		return fmt.Errorf("overlap: %s", m.show(s))
	}
	return nil
}

func (m *xModel) show(s xState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "policy %v bounded %v programs %v, door %#x:", m.policy, m.bounded, m.programs, s.door)
	for bit := range 3 * xPerClient {
		if s.nodes>>bit&1 != 0 {
			n := m.node(bit)
			fmt.Fprintf(&b, " %d.%d/kind%d", n.ID[0], n.ID[1], n.Kind)
		}
	}
	for c := range s.c {
		fmt.Fprintf(&b, "\n  client %d: %+v", c, s.c[c])
	}
	return b.String()
}
