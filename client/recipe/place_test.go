package recipe

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// One pass over an unordered directory finds the same contenders ahead as the ordered queue.
func TestPlaceIsThatInTheOrderedQueue(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 2))
	for round := range 2000 {
		layout := []Layout{LayoutCurator, LayoutKazoo, LayoutHost}[r.IntN(3)]
		first := []int32{0, 2147483640, -2147483648}[r.IntN(3)]
		var names []string
		for i := range 1 + r.IntN(2*MaxFew) {
			role := []Role{RoleRead, RoleWrite}[r.IntN(2)]
			names = append(names, NodeName(layout, role, NewID(int64(i+1), r.Uint64()), "host")+
				fmt.Sprintf("%010d", first+int32(i)))
		}
		own := names[r.IntN(len(names))]
		self, _, _ := ParseName(own)
		rule := Rule{Layout: layout, Kind: self.Kind, RW: true}
		queue, _, err := QueueOf(layout, names, true)
		must.OK(t, err)
		var ahead []string
		for _, c := range queue {
			if Compare(c, self) < 0 && (self.Kind.Exclusive() || c.Kind.Exclusive()) {
				ahead = append(ahead, c.Name)
			}
		}
		children := append(names, "notes")
		present := r.IntN(5) > 0
		if !present {
			children = slices.DeleteFunc(children, func(s string) bool { return s == own })
		}
		r.Shuffle(len(children), func(i, j int) { children[i], children[j] = children[j], children[i] })
		p := must.Get(rule.Place(slices.Values(children), self))(t)
		n := len(ahead)
		expect.Equal(t, p.Found, present, "round %d: p.Found", round)
		expect.Equal(t, p.Ahead, n, "round %d: p.Ahead", round)
		expect.Equal(t, p.Blocked, n > 0, "round %d: p.Blocked", round)
		expect.That(t, n < 1 || p.Blocker.Name == ahead[n-1], "round %d: waits for %s", round, p.Blocker.Name)
		expect.That(t, n < 2 || p.Before.Name == ahead[n-2], "round %d: behind %q", round, p.Before.Name)
		expect.List(t, p.Others, []string{"notes"}, "others")
		var few []string
		for _, c := range p.Few {
			few = append(few, c.Name)
		}
		slices.Sort(few)
		if slices.Sort(ahead); n > MaxFew {
			ahead = nil
		}
		expect.List(t, few, ahead, "few")
	}
}

// A contender refuses a directory in which a contender does not see, or cannot order, another.
func TestContendersThatDoNotSeeEachOther(t *testing.T) {
	const curator, kazoo = "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-", "f65a711639a74cab9e5222dd97208501"
	ours := NodeName(LayoutCurator, RoleLock, NewID(1, 1), "") + "0000000001"
	wrapped := NodeName(LayoutCurator, RoleLock, NewID(1, 2), "") + "-2147483648"
	read := NodeName(LayoutCurator, RoleRead, NewID(1, 3), "") + "0000000002"
	lock, mixed := Rule{Layout: LayoutCurator}, ErrMixedLayout
	rw := Rule{Layout: LayoutCurator, Kind: RoleRead, RW: true}
	for _, c := range []struct {
		rule  Rule
		names []string
		want  error
	}{
		{lock, []string{ours, kazoo + "__lock__0000000003"}, nil},
		{rw, []string{read, kazoo + "__lock__0000000003"}, mixed},
		{lock, []string{ours, kazoo + "__rlock__0000000003"}, mixed},
		{lock, []string{ours, curator + "lock-0000000003"}, nil},
		{lock, []string{curator + "lock-0000000003", kazoo + "__lock__0000000004"}, mixed},
		{lock, []string{ours, curator + "__READ__0000000003"}, mixed},
		{lock, []string{read, curator + "lock-0000000003"}, mixed},
		{lock, []string{ours, read}, nil},
		{rw, []string{read, curator + "__WRIT__0000000003"}, nil},
		{rw, []string{curator + "lock-0000000003"}, mixed},
		{lock, []string{wrapped, "_c_" + NewID(1, 4).UUID() + "-lock-2147483647"}, nil},
		{lock, []string{wrapped, curator + "lock-2147483000"}, ErrSequenceExhausted},
		{lock, []string{ours, curator + "lock-2147383647"}, ErrSequenceExhausted},
		{lock, []string{ours, "q-" + NewID(1, 5).UUID() + "-W-0000000009"}, mixed},
		{lock, []string{ours, curator + "lease-0000000003"}, nil},
		{Rule{Layout: LayoutKazoo}, []string{ours}, mixed},
		{lock, []string{ours, NodeName(LayoutKazoo, RoleLock, NewID(1, 6), "") + "0000000003"}, mixed},
		{lock, []string{ours, kazoo + "-W-0000000003"}, mixed},
	} {
		_, err := c.rule.Place(slices.Values(c.names), Contender{})
		expect.That(t, errors.Is(err, c.want), "%+v: %v: %v, not %v", c.rule, c.names, err, c.want)
	}
}

// What a contender of a lock with a policy does next.
func TestStepsUnderAPolicy(t *testing.T) {
	own, other, third := ID{1}, ID{2}, ID{3}
	node := func(id ID, kind PolicyRole, seq int32) PolicyNode { return PolicyNode{id, kind, seq} }
	type nodes = []PolicyNode
	type view = PolicyView
	read, write := node(own, QueueRead, 5), node(own, QueueWrite, 5)
	before, behind := node(other, QueueWrite, 4), node(other, QueueWrite, 6)
	readBefore, readBehind := node(third, QueueRead, 4), node(third, QueueRead, 6)
	reads, writes := node(third, HoldRead, 0), node(third, HoldWrite, 0)
	doorOf := func(id ID, kind DoorKind) Door { return Door{id, kind} }
	on := func(n PolicyNode) Step { return Step{Do: Wait, On: n} }
	data := func(n PolicyNode) Step { return Step{Do: Wait, On: n, Data: true} }
	timer := func(n PolicyNode) Step { return Step{Do: Wait, On: n, Timer: true} }
	do := func(d Do) Step { return Step{Do: d} }
	for i, c := range []struct {
		v      view
		queued bool
		want   Step
	}{
		{view{}, false, do(Grant)},
		{view{}, true, do(Removed)},
		{view{Nodes: nodes{reads}}, false, do(Grant)},
		{view{Nodes: nodes{writes}}, false, do(Enqueue)},
		{view{Nodes: nodes{writes, read}}, true, on(writes)},
		{view{Nodes: nodes{before}}, false, do(Enqueue)},
		{view{Nodes: nodes{before, read}}, true, on(before)},
		{view{Nodes: nodes{behind, read}}, true, do(Grant)},
		{view{Policy: PolicyWriter, Nodes: nodes{behind, read}}, true, on(behind)},
		{view{Policy: PolicyReader, Nodes: nodes{before}}, false, do(Grant)},
		{view{Policy: PolicyReader, Nodes: nodes{before, read}}, true, do(Grant)},
		// An overdue writer closes the door; until then readers overtake it.
		{view{Policy: PolicyReader, Overdue: true, Nodes: nodes{before}}, false, do(Grant)},
		{view{Policy: PolicyReader, Overdue: true, Nodes: nodes{behind, read}}, true, do(Grant)},
		{view{Door: doorOf(other, DoorWrite)}, false, do(Grant)}, // its owner is gone
		{view{Door: doorOf(other, DoorWrite), Nodes: nodes{behind, read}}, true, on(behind)},
		{view{Policy: PolicyReader, Door: doorOf(other, DoorWrite), Nodes: nodes{behind, read}}, true,
			data(behind)},
		{view{Door: doorOf(third, DoorUpgrade), Nodes: nodes{reads, read}}, true, data(reads)},
		{view{Door: doorOf(third, DoorWrite), Nodes: nodes{reads}}, false, do(Grant)},
		{view{Door: doorOf(third, DoorUpgrade), Nodes: nodes{reads}}, false, do(Enqueue)},
	} {
		expect.Equal(t, DecideRead(&c.v, own, c.queued), c.want, "reader %d: %+v", i, c.v)
	}
	shut := doorOf(own, DoorWrite)
	for i, c := range []struct {
		v    view
		want Step
	}{
		{view{}, do(Removed)},
		{view{Nodes: nodes{write}}, do(CloseDoor)},
		{view{Nodes: nodes{write, behind, readBehind}}, do(CloseDoor)},
		{view{Nodes: nodes{write, before}}, on(before)},
		{view{Nodes: nodes{write, readBefore}}, on(readBefore)},
		{view{Policy: PolicyWriter, Nodes: nodes{write, readBefore}}, do(CloseDoor)},
		{view{Policy: PolicyReader, Nodes: nodes{write, readBehind}}, timer(readBehind)},
		{view{Policy: PolicyReader, Nodes: nodes{write, readBehind, reads}}, timer(reads)},
		{view{Policy: PolicyReader, Nodes: nodes{write}}, do(CloseDoor)},
		{view{Policy: PolicyReader, Overdue: true, Nodes: nodes{write, readBehind, reads}}, do(CloseDoor)},
		{view{Policy: PolicyReader, Overdue: true, Nodes: nodes{write, before}}, on(before)},
		{view{Door: doorOf(third, DoorUpgrade), Nodes: nodes{write, reads}}, on(reads)},
		{view{Door: doorOf(third, DoorWrite), Nodes: nodes{write, writes}}, on(writes)},
		{view{Door: shut, Nodes: nodes{write}}, do(Grant)},
		{view{Door: shut, Nodes: nodes{write, node(own, HoldRead, 0)}}, do(Grant)},
		{view{Door: shut, Nodes: nodes{write, reads}}, on(reads)},
		{view{Door: shut, Nodes: nodes{write, reads, node(other, HoldWrite, 0)}}, on(node(other, HoldWrite, 0))},
		{view{Policy: PolicyReader, Door: shut, Nodes: nodes{write, reads}}, do(ReopenDoor)},
		{view{Policy: PolicyReader, Overdue: true, Door: shut, Nodes: nodes{write, reads}}, on(reads)},
		{view{Policy: PolicyReader, Door: shut, Nodes: nodes{write, writes}}, on(writes)},
	} {
		expect.Equal(t, DecideWrite(&c.v, own), c.want, "writer %d: %+v", i, c.v)
	}
	held, rises := node(own, HoldRead, 0), doorOf(own, DoorUpgrade)
	for i, c := range []struct {
		v    view
		want Step
	}{
		{view{Nodes: nodes{read}}, do(Removed)},
		{view{Nodes: nodes{held, reads}}, do(CloseDoor)},
		{view{Door: rises, Nodes: nodes{held}}, do(Grant)},
		{view{Door: rises, Nodes: nodes{held, reads}}, on(reads)},
		{view{Door: doorOf(third, DoorUpgrade), Nodes: nodes{held, reads}}, do(Clash)},
		{view{Door: doorOf(third, DoorUpgrade), Nodes: nodes{held}}, do(CloseDoor)},
		{view{Door: doorOf(other, DoorWrite), Nodes: nodes{held, before}}, do(CloseDoor)},
		{view{Nodes: nodes{held, writes}}, on(writes)},
	} {
		expect.Equal(t, DecideUpgrade(&c.v, own), c.want, "upgrade %d: %+v", i, c.v)
	}
}

// Only a node that a downgrade may replace leaves its place to another.
func TestEndsThatAreFinal(t *testing.T) {
	curator, kazoo := Rule{Layout: LayoutCurator}, Rule{Layout: LayoutKazoo}
	reader := Rule{Layout: LayoutKazoo, Kind: RoleRead}
	for _, c := range []struct {
		rule Rule
		kind Role
		want bool
	}{
		{curator, RoleLock, true}, {curator, RoleWrite, false}, {curator, RoleRead, true},
		{curator, RoleLatch, true},
		{kazoo, RoleLock, false}, {kazoo, RoleWrite, false}, {kazoo, RoleRead, true}, {kazoo, RoleLatch, true},
		{reader, RoleLock, true}, {reader, RoleWrite, true},
	} {
		expect.Equal(t, c.rule.EndIsFinal(Contender{Kind: c.kind}), c.want, "%+v: the end of %v", c.rule, c.kind)
	}
}

// QueueOf puts contenders in order, and refuses those that cannot be in one queue.
func TestQueueOfADirectory(t *testing.T) {
	const curator = "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-lock-"
	head := NodeName(LayoutCurator, RoleLock, NewID(1, 1), "")
	list, others, err := QueueOf(LayoutCurator, []string{head + "0000000003", "notes", head + "0000000001",
		curator + "0000000002"}, false)
	must.OK(t, err)
	var order []int32
	for _, c := range list {
		order = append(order, c.Seq)
	}
	expect.List(t, order, []int32{1, 2, 3}, "order")
	expect.List(t, others, []string{"notes"}, "others")
	list, _, err = QueueOf(LayoutKazoo, []string{"notes", head + "0000000001"}, false)
	expect.That(t, list == nil, "%v", list)
	expect.Is(t, err, ErrMixedLayout)
	_, _, err = QueueOf(LayoutCurator, []string{head + "-2147483648", curator + "0000000001"}, false)
	expect.Is(t, err, ErrSequenceExhausted)
}

// Contenders of other programs order numbers as text: no number may have wrapped, or be about to.
func TestNumbersThatOtherProgramsOrder(t *testing.T) {
	const curator = "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-lock-"
	lock := Rule{Layout: LayoutCurator}
	wrapped := NodeName(LayoutCurator, RoleLock, NewID(1, 2), "") + "-2147483648"
	last := curator + strconv.Itoa(math.MaxInt32-1_000_000)
	for _, c := range []struct {
		names []string
		want  error
	}{
		{[]string{curator + "0000000000"}, nil}, {[]string{last}, nil},
		{[]string{wrapped, curator + "0000000003"}, ErrSequenceExhausted},
		{[]string{curator + "0000000003", wrapped}, ErrSequenceExhausted},
		{[]string{curator + strconv.Itoa(math.MaxInt32-999_999)}, ErrSequenceExhausted},
	} {
		_, err := lock.Place(slices.Values(c.names), Contender{})
		expect.Is(t, err, c.want, "%v", c.names)
	}
	host, kazoo := Rule{Layout: LayoutHost}, []string{"f65a711639a74cab9e5222dd97208501__lock__0000000003"}
	_, err := host.Place(slices.Values(kazoo), Contender{})
	expect.Is(t, err, ErrMixedLayout)
}

// A reader that is queued gives its place in the queue for the hold.
func TestGrantsOfReaders(t *testing.T) {
	id := NewID(1, 2)
	expect.Equal(t, ReadGrant(id, false), GrantTxn{Create: PolicyNode{ID: id, Kind: HoldRead}})
	expect.Equal(t, ReadGrant(id, true), GrantTxn{Create: PolicyNode{ID: id, Kind: HoldRead},
		Delete: PolicyNode{ID: id, Kind: QueueRead}})
}
