package turns

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
)

// pace is the value of GOGC. An explorer has little memory in use and produces much garbage: with the usual
// value of 100 the tests spend a quarter of their processor time on collecting it.
const pace = 400

func init() { debug.SetGCPercent(pace) }

// explorer walks all states.
type explorer struct {
	m      xModel
	ids    map[xState]int32
	states []xState
	from   [][2]int32 // edges: a step leads from the second state to the first
	nodes  [3 * xPerClient]recipe.PolicyNode
	view   []recipe.PolicyNode
	fault  error // the first fault of a step
}

// explore() returns the number of states and what is wrong, if anything.
func explore(m xModel) (int, error) {
	x := &explorer{m: m, ids: map[xState]int32{}}
	for i := range x.nodes {
		x.nodes[i] = m.node(i)
	}
	x.add(-1, xState{})
	for i := 0; i < len(x.states); i++ {
		s := x.states[i]
		if err := m.overlap(s); err != nil {
			return len(x.states), err
		}
		x.successors(int32(i), s)
		if x.fault != nil {
			return len(x.states), x.fault
		}
	}
	return len(x.states), x.stuck()
}

func (x *explorer) add(from int32, s xState) {
	id, ok := x.ids[s]
	if !ok {
		id = int32(len(x.states))
		x.ids[s] = id
		x.states = append(x.states, s)
	}
	if from >= 0 && from != id {
		x.from = append(x.from, [2]int32{id, from})
	}
}

// stuck() checks the liveness property: from every state, all clients can come to an end.
func (x *explorer) stuck() error {
	slices.SortFunc(x.from, func(a, b [2]int32) int { return int(a[0] - b[0]) })
	start := make([]int32, len(x.states)+1)
	for _, e := range x.from {
		start[e[0]+1]++
	}
	for i := range x.states {
		start[i+1] += start[i]
	}
	good := make([]bool, len(x.states))
	var todo []int32
	for i, s := range x.states {
		if s.c[0].at >= xDone && s.c[1].at >= xDone && s.c[2].at >= xDone {
			good[i] = true
			todo = append(todo, int32(i))
		}
	}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, e := range x.from[start[i]:start[i+1]] {
			if !good[e[1]] {
				good[e[1]] = true
				todo = append(todo, e[1])
			}
		}
	}
	if i := slices.Index(good, false); i >= 0 {
		return fmt.Errorf("stuck: %s", x.m.show(x.states[i]))
	}
	return nil
}

func (x *explorer) successors(from int32, s xState) {
	for c := range 3 {
		if s.c[c].at >= xDone {
			continue
		}
		x.step(from, s, c)
		if !s.faulted && !x.m.requeue { // a crash, at any point
			t := s
			t.faulted = true
			t.nodes &^= (1<<xPerClient - 1) << (c * xPerClient)
			t.c[c] = xClient{at: xDead}
			x.add(from, t)
		}
	}
	if !s.faulted && x.m.requeue { // an operator removes a queue node
		for bit := range x.nodes {
			if local := bit % xPerClient; local != xFresh && local%xAttempt == xQueue && s.nodes>>bit&1 != 0 {
				t := s
				t.faulted = true
				t.nodes &^= 1 << bit
				x.add(from, t)
			}
		}
	}
	if x.m.bounded && !s.overdue {
		t := s
		t.overdue = true
		x.add(from, t)
	}
}

// step() lets client c take its next step.
func (x *explorer) step(from int32, s xState, c int) {
	me := &s.c[c]
	id := xID(c, me.attempt)
	if x.m.programs[c] == xReadCancelledUpgrade && me.phase == xUpgrade && me.at != xHeld {
		t := s
		t.endUpgrade(c)
		x.add(from, t)
	}
	switch me.at {
	case xAtRecord:
		me.known, me.door = true, s.door
		me.at = xAtList
		if x.m.mutation == xListBeforeRecord {
			x.decide(&s, c)
		}
	case xAtList:
		me.list = s.nodes
		if x.m.mutation == xListBeforeRecord && !x.doorMine(me, c) {
			me.at = xAtRecord
		} else {
			x.decide(&s, c)
		}
	case xAtArm:
		if s.nodes>>me.on&1 == 0 {
			x.again(me, c)
		} else {
			me.at = xAsleep
		}
	case xAsleep:
		switch {
		case s.nodes>>me.on&1 == 0, me.data && !me.known, me.timer && s.overdue:
			x.again(me, c)
		default:
			return
		}
	case xAtAct:
		x.act(&s, c, id)
	case xHeld:
		x.held(&s, c, id)
	}
	if s.c[c].at != xAsleep {
		s.c[c].on, s.c[c].data, s.c[c].timer = s.c[c].onIfArming()
	}
	x.add(from, s)
}

// If the client is about to set a watch, onIfArming returns what it will watch. Otherwise it returns nothing,
// so that fewer states differ.
func (c *xClient) onIfArming() (uint8, bool, bool) {
	if c.at == xAtArm {
		return c.on, c.data, c.timer
	}
	return 0, false, false
}

// doorMine reports whether the client has closed the door. From then on the client reads only lists.
func (x *explorer) doorMine(me *xClient, c int) bool {
	kind := recipe.DoorWrite
	if me.phase == xUpgrade {
		kind = recipe.DoorUpgrade
	}
	return me.door == xDoor(kind, c, me.attempt)
}

// again() lets the client look again. If the client has closed the door, it reads only the list.
func (x *explorer) again(me *xClient, c int) {
	me.at = xAtRecord
	if x.doorMine(me, c) || x.m.mutation == xListBeforeRecord {
		me.at = xAtList
	}
	me.list, me.do = 0, 0
}

func (x *explorer) decide(s *xState, c int) {
	me := &s.c[c]
	id := xID(c, me.attempt)
	v := PolicyView{Policy: x.m.policy, Overdue: s.overdue, Nodes: x.view[:0]}
	for bit := range x.nodes {
		if me.list>>bit&1 != 0 {
			n := x.nodes[bit]
			if !n.Kind.Hold() {
				n.Seq = int32(slices.Index(s.order[:], uint8(bit)+1))
			}
			v.Nodes = append(v.Nodes, n)
		}
	}
	x.view = v.Nodes
	if g := me.door; g != 0 {
		v.Door = recipe.Door{Owner: xID(int(g>>1&7), g&1), Kind: recipe.DoorKind(g >> 4)}
	}
	var st Step
	switch {
	case me.phase == xUpgrade:
		st = DecideUpgrade(&v, id)
	case x.m.programs[c] == xTryWrite && !me.queued && me.list != 0:
		st = Step{Do: xGiveUp}
	case x.m.programs[c].writes() && !me.queued:
		st = Step{Do: Enqueue}
	case x.m.programs[c].writes():
		st = DecideWrite(&v, id)
	default:
		st = DecideRead(&v, id, me.queued)
	}
	waits := st.Do == Wait || st.Do == ReopenDoor || st.Do == Enqueue && !x.m.programs[c].writes()
	if waits && x.m.programs[c].tries() {
		st.Do = xGiveUp
	}
	if st.Do == xGiveUp && alone(me.list, c) {
		x.fault = fmt.Errorf("refused without another contender: %s", x.m.show(*s))
	}
	me.list = 0
	switch st.Do {
	case Wait:
		me.at = xAtArm
		me.on = uint8(x.m.bit(st.On))
		me.data = st.Data && x.m.mutation != xNoDataWatch
		me.timer = st.Timer && x.m.bounded
	case Removed:
		s.removed(c)
	case Clash:
		s.endUpgrade(c)
	default:
		me.at, me.do = xAtAct, st.Do
	}
}

func (x *explorer) act(s *xState, c int, id recipe.ID) {
	me := &s.c[c]
	upgrade := me.phase == xUpgrade
	var res xResult
	switch me.do {
	case Enqueue:
		bit := c*xPerClient + int(me.attempt)*xAttempt + xQueue
		s.nodes |= 1 << bit
		s.order[slices.Index(s.order[:], 0)] = uint8(bit) + 1
		me.queued = true
		x.again(me, c)
		return
	case xGiveUp:
		if x.m.mutation != xStays {
			s.nodes &^= (1<<xPerClient - 1) << (c * xPerClient)
		}
		*me = xClient{at: xDone}
		return
	case CloseDoor:
		kind := recipe.DoorWrite
		if upgrade {
			kind = recipe.DoorUpgrade
		}
		res = x.mark(s, c, xDoor(kind, c, me.attempt))
	case ReopenDoor:
		res = x.mark(s, c, 0)
	case Grant:
		txn := ReadGrant(id, me.queued)
		switch {
		case upgrade:
			txn = UpgradeGrant(id)
		case x.m.programs[c].writes():
			txn = WriteGrant(id)
		}
		res = x.grant(s, c, txn)
	}
	do := me.do
	switch res {
	case xBadVersion:
		me.door = 0
		x.again(me, c)
	case xNoNode:
		s.removed(c)
	default:
		x.again(me, c)
		if do == Grant {
			phase := me.phase
			if phase == xUpgrade {
				phase = xLast
			}
			*me = xClient{at: xHeld, phase: phase, attempt: me.attempt}
		}
	}
}

type xResult uint8

const (
	xOK xResult = iota
	xBadVersion
	xNoNode
)

// mark() writes the record, unless the record has changed since the client read it.
func (x *explorer) mark(s *xState, c int, door uint8) xResult {
	if !s.c[c].known {
		return xBadVersion
	}
	s.setDoor(c, door)
	return xOK
}

// grant() runs the transaction of a grant.
func (x *explorer) grant(s *xState, c int, txn GrantTxn) xResult {
	lacks := func(n recipe.PolicyNode) bool { return n.Kind != 0 && s.nodes>>x.m.bit(n)&1 == 0 }
	switch {
	case !s.c[c].known:
		return xBadVersion
	case x.m.mutation != xNoQueueCheck && lacks(txn.Check) || lacks(txn.Delete):
		return xNoNode
	case !lacks(txn.Create):
		panic("node exists")
	}
	x.replace(s, txn.Create, txn.Delete)
	return xOK
}

// replace() makes a node and removes others.
func (x *explorer) replace(s *xState, made recipe.PolicyNode, old ...recipe.PolicyNode) {
	s.nodes |= 1 << x.m.bit(made)
	for _, n := range old {
		if n.Kind != 0 {
			s.nodes &^= 1 << x.m.bit(n)
		}
	}
}

// held() continues the client's program after the client got its hold.
func (x *explorer) held(s *xState, c int, id recipe.ID) {
	me := &s.c[c]
	program := x.m.programs[c]
	switch {
	case me.phase == xAcquire && (program == xReadUpgrade || program == xReadCancelledUpgrade):
		*me = xClient{phase: xUpgrade, attempt: me.attempt}
		x.again(me, c)
	case me.phase == xAcquire && program == xWriteDowngrade:
		x.replace(s, recipe.PolicyNode{ID: recipe.ID{byte(c + 1), 2}, Kind: recipe.HoldRead},
			recipe.PolicyNode{ID: id, Kind: recipe.HoldWrite}, recipe.PolicyNode{ID: id, Kind: recipe.QueueWrite})
		*me = xClient{at: xHeld, phase: xLast, attempt: me.attempt}
	default:
		s.nodes &^= (1<<xPerClient - 1) << (c * xPerClient)
		*me = xClient{at: xDone}
	}
}

// xModels calls f with every mixture of three programs, a policy and a fault.
func xModels(f func(xModel)) {
	for p := range xPrograms {
		for q := p; q < xPrograms; q++ {
			for r := q; r < xPrograms; r++ {
				for _, policy := range []recipe.Policy{recipe.PolicyFair, recipe.PolicyReader, recipe.PolicyWriter} {
					for _, requeue := range []bool{false, true} {
						if requeue && r >= xTryRead {
							// Skip contenders that may not wait: they take a new place when theirs is removed, as the others do.
							continue
						}
						f(xModel{policy: policy, programs: [3]xProgram{p, q, r}, requeue: requeue})
						if policy == recipe.PolicyReader {
							f(xModel{policy: policy, bounded: true, programs: [3]xProgram{p, q, r},
								requeue: requeue})
						}
					}
				}
			}
		}
	}
}

func TestPolicyExplorerFindsNoOverlapAndNoStuckState(t *testing.T) {
	race.Alone(t)
	every := 1
	if testing.Short() {
		every = 101
	}
	total, models := 0, 0
	seen := 0
	xModels(func(m xModel) {
		if seen++; seen%every != 0 {
			return
		}
		n := must.Get(explore(m))(t)
		total += n
		models++
	})
	t.Logf("%d states of %d mixtures", total, models)
}

// The explorer must find each fault that is built into the protocol. Otherwise it proves nothing about the
// correct protocol.
func TestPolicyExplorerFindsEachMutation(t *testing.T) {
	race.Alone(t)
	for name, tc := range map[string]struct {
		mutation xMutation
		want     string
	}{
		"list before record":     {xListBeforeRecord, "overlap"},
		"no check of own q-W":    {xNoQueueCheck, "overlap"},
		"no watch on the record": {xNoDataWatch, "stuck"},
		"a try that stays":       {xStays, "stuck"},
	} {
		t.Run(name, func(t *testing.T) {
			found := 0
			xModels(func(m xModel) {
				if found > 0 {
					return
				}
				m.mutation = tc.mutation
				if _, err := explore(m); err != nil {
					must.That(t, strings.HasPrefix(err.Error(), tc.want),
						"found %v, want %s", err, tc.want)
					found++
				}
			})
			must.That(t, found != 0, "not found")
		})
	}
}
