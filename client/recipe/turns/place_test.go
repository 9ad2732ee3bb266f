package turns

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// One pass over an unordered directory finds the same contenders ahead as the ordered queue.
func TestPlaceIsThatInTheOrderedQueue(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 2))
	for round := range 2000 {
		layout := []recipe.Layout{recipe.LayoutCurator, recipe.LayoutKazoo, recipe.LayoutHost}[r.IntN(3)]
		first := []int32{0, 2147483640, -2147483648}[r.IntN(3)]
		var names []string
		for i := range 1 + r.IntN(2*maxFew) {
			role := []recipe.Role{recipe.RoleRead, recipe.RoleWrite}[r.IntN(2)]
			names = append(names, recipe.NodeName(layout, role, recipe.NewID(int64(i+1), r.Uint64()), "host")+
				fmt.Sprintf("%010d", first+int32(i)))
		}
		own := names[r.IntN(len(names))]
		self, _, _ := recipe.ParseName(own)
		rule := Rule{Layout: layout, Kind: self.Kind, RW: true}
		queue, _, err := QueueOf(layout, names, true)
		must.OK(t, err)
		var ahead []string
		for _, c := range queue {
			if recipe.Compare(c, self) < 0 && (self.Kind.Exclusive() || c.Kind.Exclusive()) {
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
		if slices.Sort(ahead); n > maxFew {
			ahead = nil
		}
		expect.List(t, few, ahead, "few")
	}
}

// A contender refuses a directory if one contender in it does not see another one, or cannot order it.
func TestContendersThatDoNotSeeEachOther(t *testing.T) {
	const curator, kazoo = "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-", "f65a711639a74cab9e5222dd97208501"
	ours := recipe.NodeName(recipe.LayoutCurator, recipe.RoleLock, recipe.NewID(1, 1), "") + "0000000001"
	wrapped := recipe.NodeName(recipe.LayoutCurator, recipe.RoleLock, recipe.NewID(1, 2), "") + "-2147483648"
	read := recipe.NodeName(recipe.LayoutCurator, recipe.RoleRead, recipe.NewID(1, 3), "") + "0000000002"
	lock, mixed := Rule{Layout: recipe.LayoutCurator}, recipe.ErrMixedLayout
	rw := Rule{Layout: recipe.LayoutCurator, Kind: recipe.RoleRead, RW: true}
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
		{lock, []string{wrapped, "_c_" + recipe.NewID(1, 4).UUID() + "-lock-2147483647"}, nil},
		{lock, []string{wrapped, curator + "lock-2147483000"}, recipe.ErrSequenceExhausted},
		{lock, []string{ours, curator + "lock-2147383647"}, recipe.ErrSequenceExhausted},
		{lock, []string{ours, "q-" + recipe.NewID(1, 5).UUID() + "-W-0000000009"}, mixed},
		{lock, []string{ours, curator + "lease-0000000003"}, nil},
		{Rule{Layout: recipe.LayoutKazoo}, []string{ours}, mixed},
		{lock, []string{ours, recipe.NodeName(recipe.LayoutKazoo, recipe.RoleLock, recipe.NewID(1, 6),
			"") + "0000000003"}, mixed},
		{lock, []string{ours, kazoo + "-W-0000000003"}, mixed},
	} {
		_, err := c.rule.Place(slices.Values(c.names), recipe.Contender{})
		expect.That(t, errors.Is(err, c.want), "%+v: %v: %v, not %v", c.rule, c.names, err, c.want)
	}
}

// Each kind of contender of a lock with a policy takes the right step for what it sees.
func TestStepsUnderAPolicy(t *testing.T) {
	own, other, third := recipe.ID{1}, recipe.ID{2}, recipe.ID{3}
	node := func(id recipe.ID, kind recipe.PolicyRole, seq int32) recipe.PolicyNode {
		return recipe.PolicyNode{ID: id, Kind: kind, Seq: seq}
	}
	type nodes = []recipe.PolicyNode
	type view = PolicyView
	read, write := node(own, recipe.QueueRead, 5), node(own, recipe.QueueWrite, 5)
	before, behind := node(other, recipe.QueueWrite, 4), node(other, recipe.QueueWrite, 6)
	readBefore, readBehind := node(third, recipe.QueueRead, 4), node(third, recipe.QueueRead, 6)
	reads, writes := node(third, recipe.HoldRead, 0), node(third, recipe.HoldWrite, 0)
	doorOf := func(id recipe.ID, kind recipe.DoorKind) recipe.Door { return recipe.Door{Owner: id, Kind: kind} }
	on := func(n recipe.PolicyNode) Step { return Step{Do: Wait, On: n} }
	data := func(n recipe.PolicyNode) Step { return Step{Do: Wait, On: n, Data: true} }
	timer := func(n recipe.PolicyNode) Step { return Step{Do: Wait, On: n, Timer: true} }
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
		{view{Policy: recipe.PolicyWriter, Nodes: nodes{behind, read}}, true, on(behind)},
		{view{Policy: recipe.PolicyReader, Nodes: nodes{before}}, false, do(Grant)},
		{view{Policy: recipe.PolicyReader, Nodes: nodes{before, read}}, true, do(Grant)},
		// An overdue writer closes the door; until then readers overtake it.
		{view{Policy: recipe.PolicyReader, Overdue: true, Nodes: nodes{before}}, false, do(Grant)},
		{view{Policy: recipe.PolicyReader, Overdue: true, Nodes: nodes{behind, read}}, true, do(Grant)},
		{view{Door: doorOf(other, recipe.DoorWrite)}, false, do(Grant)}, // the door's owner is gone
		{view{Door: doorOf(other, recipe.DoorWrite), Nodes: nodes{behind, read}}, true, on(behind)},
		{view{Policy: recipe.PolicyReader, Door: doorOf(other, recipe.DoorWrite), Nodes: nodes{behind, read}}, true,
			data(behind)},
		{view{Door: doorOf(third, recipe.DoorUpgrade), Nodes: nodes{reads, read}}, true, data(reads)},
		{view{Door: doorOf(third, recipe.DoorWrite), Nodes: nodes{reads}}, false, do(Grant)},
		{view{Door: doorOf(third, recipe.DoorUpgrade), Nodes: nodes{reads}}, false, do(Enqueue)},
	} {
		expect.Equal(t, DecideRead(&c.v, own, c.queued), c.want, "reader %d: %+v", i, c.v)
	}
	shut := doorOf(own, recipe.DoorWrite)
	for i, c := range []struct {
		v    view
		want Step
	}{
		{view{}, do(Removed)},
		{view{Nodes: nodes{write}}, do(CloseDoor)},
		{view{Nodes: nodes{write, behind, readBehind}}, do(CloseDoor)},
		{view{Nodes: nodes{write, before}}, on(before)},
		{view{Nodes: nodes{write, readBefore}}, on(readBefore)},
		{view{Policy: recipe.PolicyWriter, Nodes: nodes{write, readBefore}}, do(CloseDoor)},
		{view{Policy: recipe.PolicyReader, Nodes: nodes{write, readBehind}}, timer(readBehind)},
		{view{Policy: recipe.PolicyReader, Nodes: nodes{write, readBehind, reads}}, timer(reads)},
		{view{Policy: recipe.PolicyReader, Nodes: nodes{write}}, do(CloseDoor)},
		{view{Policy: recipe.PolicyReader, Overdue: true, Nodes: nodes{write, readBehind, reads}}, do(CloseDoor)},
		{view{Policy: recipe.PolicyReader, Overdue: true, Nodes: nodes{write, before}}, on(before)},
		{view{Door: doorOf(third, recipe.DoorUpgrade), Nodes: nodes{write, reads}}, on(reads)},
		{view{Door: doorOf(third, recipe.DoorWrite), Nodes: nodes{write, writes}}, on(writes)},
		{view{Door: shut, Nodes: nodes{write}}, do(Grant)},
		{view{Door: shut, Nodes: nodes{write, node(own, recipe.HoldRead, 0)}}, do(Grant)},
		{view{Door: shut, Nodes: nodes{write, reads}}, on(reads)},
		{view{Door: shut, Nodes: nodes{write, reads, node(other, recipe.HoldWrite, 0)}},
			on(node(other, recipe.HoldWrite, 0))},
		{view{Policy: recipe.PolicyReader, Door: shut, Nodes: nodes{write, reads}}, do(ReopenDoor)},
		{view{Policy: recipe.PolicyReader, Overdue: true, Door: shut, Nodes: nodes{write, reads}}, on(reads)},
		{view{Policy: recipe.PolicyReader, Door: shut, Nodes: nodes{write, writes}}, on(writes)},
	} {
		expect.Equal(t, DecideWrite(&c.v, own), c.want, "writer %d: %+v", i, c.v)
	}
	held, rises := node(own, recipe.HoldRead, 0), doorOf(own, recipe.DoorUpgrade)
	for i, c := range []struct {
		v    view
		want Step
	}{
		{view{Nodes: nodes{read}}, do(Removed)},
		{view{Nodes: nodes{held, reads}}, do(CloseDoor)},
		{view{Door: rises, Nodes: nodes{held}}, do(Grant)},
		{view{Door: rises, Nodes: nodes{held, reads}}, on(reads)},
		{view{Door: doorOf(third, recipe.DoorUpgrade), Nodes: nodes{held, reads}}, do(Clash)},
		{view{Door: doorOf(third, recipe.DoorUpgrade), Nodes: nodes{held}}, do(CloseDoor)},
		{view{Door: doorOf(other, recipe.DoorWrite), Nodes: nodes{held, before}}, do(CloseDoor)},
		{view{Nodes: nodes{held, writes}}, on(writes)},
	} {
		expect.Equal(t, DecideUpgrade(&c.v, own), c.want, "upgrade %d: %+v", i, c.v)
	}
}

// The end of a contender is final unless a downgrade may put another node in the place of its node.
func TestEndsThatAreFinal(t *testing.T) {
	curator, kazoo := Rule{Layout: recipe.LayoutCurator}, Rule{Layout: recipe.LayoutKazoo}
	reader := Rule{Layout: recipe.LayoutKazoo, Kind: recipe.RoleRead}
	for _, c := range []struct {
		rule Rule
		kind recipe.Role
		want bool
	}{
		{curator, recipe.RoleLock, true}, {curator, recipe.RoleWrite, false}, {curator, recipe.RoleRead, true},
		{curator, recipe.RoleLatch, true},
		{kazoo, recipe.RoleLock, false}, {kazoo, recipe.RoleWrite, false}, {kazoo, recipe.RoleRead, true},
		{kazoo, recipe.RoleLatch, true},
		{reader, recipe.RoleLock, true}, {reader, recipe.RoleWrite, true},
	} {
		expect.Equal(t, c.rule.EndIsFinal(recipe.Contender{Kind: c.kind}), c.want, "%+v: the end of %v",
			c.rule, c.kind)
	}
}

// QueueOf puts contenders in order, and refuses contenders that cannot be in one queue.
func TestQueueOfADirectory(t *testing.T) {
	const curator = "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-lock-"
	head := recipe.NodeName(recipe.LayoutCurator, recipe.RoleLock, recipe.NewID(1, 1), "")
	list, others, err := QueueOf(recipe.LayoutCurator, []string{head + "0000000003", "notes",
		head + "0000000001",
		curator + "0000000002"}, false)
	must.OK(t, err)
	var order []int32
	for _, c := range list {
		order = append(order, c.Seq)
	}
	expect.List(t, order, []int32{1, 2, 3}, "order")
	expect.List(t, others, []string{"notes"}, "others")
	list, _, err = QueueOf(recipe.LayoutKazoo, []string{"notes", head + "0000000001"}, false)
	expect.That(t, list == nil, "%v", list)
	expect.Is(t, err, recipe.ErrMixedLayout)
	_, _, err = QueueOf(recipe.LayoutCurator, []string{head + "-2147483648", curator + "0000000001"}, false)
	expect.Is(t, err, recipe.ErrSequenceExhausted)
}

// Contenders of other programs order numbers as text, so no number may have wrapped, or wrap soon.
func TestNumbersThatOtherProgramsOrder(t *testing.T) {
	const curator = "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-lock-"
	lock := Rule{Layout: recipe.LayoutCurator}
	wrapped := recipe.NodeName(recipe.LayoutCurator, recipe.RoleLock, recipe.NewID(1, 2), "") + "-2147483648"
	last := curator + strconv.Itoa(math.MaxInt32-1_000_000)
	for _, c := range []struct {
		names []string
		want  error
	}{
		{[]string{curator + "0000000000"}, nil}, {[]string{last}, nil},
		{[]string{wrapped, curator + "0000000003"}, recipe.ErrSequenceExhausted},
		{[]string{curator + "0000000003", wrapped}, recipe.ErrSequenceExhausted},
		{[]string{curator + strconv.Itoa(math.MaxInt32-999_999)}, recipe.ErrSequenceExhausted},
	} {
		_, err := lock.Place(slices.Values(c.names), recipe.Contender{})
		expect.Is(t, err, c.want, "%v", c.names)
	}
	host, kazoo := Rule{Layout: recipe.LayoutHost},
		[]string{"f65a711639a74cab9e5222dd97208501__lock__0000000003"}
	_, err := host.Place(slices.Values(kazoo), recipe.Contender{})
	expect.Is(t, err, recipe.ErrMixedLayout)
}

// The grant of a queued reader also removes its place in the queue.
func TestGrantsOfReaders(t *testing.T) {
	id := recipe.NewID(1, 2)
	expect.Equal(t, ReadGrant(id, false), GrantTxn{Create: recipe.PolicyNode{ID: id, Kind: recipe.HoldRead}})
	expect.Equal(t, ReadGrant(id, true), GrantTxn{Create: recipe.PolicyNode{ID: id, Kind: recipe.HoldRead},
		Delete: recipe.PolicyNode{ID: id, Kind: recipe.QueueRead}})
}
