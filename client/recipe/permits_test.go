package recipe

import (
	"fmt"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/race"
)

// permitsModel is a semaphore of limit permits with contenders that do one step at a time: tries, heads
// of the queue that count first and make their permits then, and heads of Curator's recipe, which make
// their permit first.
type permitsModel struct {
	next    int32
	changes int // of the queue
	queue   []int
	permits []string
	who     []permitsContender
}

type permitsContender struct {
	kind    int // 0: a try, 1: counts first, 2: Curator, 3: counts first, and has no numbers
	wants   int
	again   int // how often a try takes other numbers
	step    int
	slots   []int // that it chose
	before  int   // changes of the queue
	queued  int
	quiet   bool
	own     []string
	holding bool
}

func (m permitsModel) copy() permitsModel {
	m.queue, m.permits, m.who = slices.Clone(m.queue), slices.Clone(m.permits), slices.Clone(m.who)
	return m
}

func (m *permitsModel) make(i int) {
	c := &m.who[i]
	c.own = nil
	for at := range c.wants {
		m.next++
		id := NewID(int64(i), uint64(m.next))
		name := PermitName(id, 0)
		if c.slots != nil {
			name = PermitName(id, c.slots[at])
		}
		c.own = append(c.own, fmt.Sprintf("%s%010d", name, m.next))
	}
	m.permits = append(m.permits, c.own...)
}

func (m *permitsModel) drop(i int) {
	own := m.who[i].own
	m.permits = slices.DeleteFunc(m.permits, func(p string) bool { return slices.Contains(own, p) })
	m.who[i].own, m.who[i].holding = nil, false
}

// act does the next step of a contender, and reports whether there was one.
func (m *permitsModel) act(i, limit int) bool {
	c := &m.who[i]
	first := func() bool { return len(m.queue) > 0 && m.queue[0] == i }
	leave := func() {
		m.queue = slices.DeleteFunc(m.queue, func(q int) bool { return q == i })
		m.changes++
	}
	if c.kind == 0 {
		switch c.step {
		case 0:
			c.before = m.changes
			if c.slots = FreeSlots(limit, m.permits, c.wants, 0); len(m.queue) > 0 || c.slots == nil {
				return false
			}
		case 1:
			m.make(i)
		case 2:
			c.queued, c.quiet = len(m.queue), c.before == m.changes
		case 3:
			switch TryPermits(limit, m.permits, c.own, c.queued, c.quiet) {
			case PermitsGranted:
				c.holding = true
			case PermitsTaken:
				if m.drop(i); c.again > 0 {
					c.again--
					c.step = 0
					return true
				}
				c.step = 9
			default:
				m.drop(i)
				c.step = 9
			}
		case 4:
			m.drop(i)
		default:
			return false
		}
		c.step++
		return true
	}
	switch c.step {
	case 0:
		m.queue = append(m.queue, i)
		m.changes++
	case 1: // the head counts, or makes its permit
		if !first() {
			return false
		}
		if c.kind == 2 {
			m.make(i)
		} else if len(m.permits)+c.wants > limit {
			return false
		}
		if c.kind == 1 {
			c.slots = FreeSlots(limit, m.permits, c.wants, 0)
		}
	case 2:
		if c.kind != 2 {
			m.make(i)
		} else if len(m.permits) > limit {
			return false
		}
		c.holding = true
	case 3:
		leave()
	case 4:
		m.drop(i)
	default:
		return false
	}
	c.step++
	return true
}

// As many permits are granted as are free, and never more than there are.
func TestDecidePermits(t *testing.T) {
	for _, c := range []struct {
		limit, used, n int
		want           Do
		err            error
	}{
		{limit: 1, used: 0, n: 1, want: Grant}, {limit: 1, used: 1, n: 1, want: Wait},
		{limit: 3, used: 1, n: 2, want: Grant}, {limit: 3, used: 2, n: 2, want: Wait},
		{limit: 2, used: 5, n: 1, want: Wait}, // the limit was lowered
		{limit: 2, used: 0, n: 3, err: ErrInvalid},
	} {
		t.Run(fmt.Sprint(c.limit, c.used, c.n), func(t *testing.T) {
			got, err := DecidePermits(c.limit, c.used, c.n)
			expect.Is(t, err, c.err, "error")
			expect.Equal(t, got, c.want, "what is done")
		})
	}
}

// held returns how many permits are held, and whether two of them have one number.
func (m *permitsModel) held(limit int) (held int, twice bool) {
	taken := map[int]bool{}
	for _, c := range m.who {
		if !c.holding {
			continue
		}
		held += len(c.own)
		for _, name := range c.own {
			slot := SlotOf(name)
			twice = twice || slot > 0 && taken[slot] || slot > limit || (slot > 0) != (c.kind < 2)
			taken[slot] = true
		}
	}
	return held, twice
}

// In every order of the steps of tries and heads, never more permits are held than there are, and no two
// with one number; and tries alone get all that are free.
func TestTryPermitsNeverOverGrants(t *testing.T) {
	race.Alone(t)
	for _, x := range []struct {
		limit int
		who   []permitsContender
	}{
		{1, []permitsContender{{kind: 0, wants: 1}, {kind: 0, wants: 1}, {kind: 1, wants: 1}}},
		{2, []permitsContender{{kind: 0, wants: 1}, {kind: 0, wants: 1}, {kind: 1, wants: 2}}},
		{2, []permitsContender{{kind: 0, wants: 2}, {kind: 1, wants: 1}, {kind: 1, wants: 1}}},
		{2, []permitsContender{{kind: 0, wants: 1}, {kind: 0, wants: 1}, {kind: 2, wants: 1}}},
		{2, []permitsContender{{kind: 0, wants: 1}, {kind: 1, wants: 2}, {kind: 2, wants: 1}}},
		{2, []permitsContender{{kind: 0, wants: 1}, {kind: 3, wants: 1}, {kind: 1, wants: 1}}},
		{2, []permitsContender{{kind: 0, wants: 1, again: 1}, {kind: 0, wants: 1, again: 1},
			{kind: 0, wants: 1, again: 1}}},
		{3, []permitsContender{{kind: 0, wants: 2, again: 1}, {kind: 0, wants: 1, again: 1},
			{kind: 1, wants: 1}}},
	} {
		t.Run(fmt.Sprint(x.limit, x.who), func(t *testing.T) {
			seen, most := map[string]bool{}, 0
			var walk func(m permitsModel)
			walk = func(m permitsModel) {
				key := fmt.Sprint(m)
				if seen[key] || t.Failed() {
					return
				}
				seen[key] = true
				held, twice := m.held(x.limit)
				if most = max(most, held); held > x.limit {
					t.Errorf("%d permits of %d are held: %+v", held, x.limit, m)
				}
				if twice {
					t.Errorf("a number is held twice, is more than %d, or is not there: %+v", x.limit, m)
				}
				for i := range m.who {
					if next := m.copy(); next.act(i, x.limit) {
						walk(next)
					}
				}
			}
			walk(permitsModel{who: x.who})
			if most != x.limit {
				t.Errorf("%d permits are held at most, want %d", most, x.limit)
			}
			t.Logf("%d states", len(seen))
		})
	}
}
