package history

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// checkTurns checks K8 and K9, by the answers to contenders of locks.
func (c *checker) checkTurns() {
	of := map[[2]string][]int{} // indexes of the answers, by lock and contender
	for i, r := range c.records {
		if r.Turn != nil {
			k := [2]string{r.Turn.Lock, r.Turn.Contender}
			of[k] = append(of[k], i)
		}
	}
	holds := map[string][]sureHold{}
	for _, k := range slices.SortedFunc(maps.Keys(of), func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	}) {
		c.checkOne(of[k])
		if h := c.sureHold(of[k]); h.from < h.to {
			holds[k[0]] = append(holds[k[0]], h)
		}
	}
	for _, lock := range slices.Sorted(maps.Keys(holds)) {
		c.checkHolds(holds[lock])
	}
}

// keptEnd is how long the end of a ticket is remembered.
const keptEnd = 10 * time.Minute

// checkOne checks the answers to one contender. An answer must show at least as much as every answer that
// came before its request was sent, unless the request only looks.
func (c *checker) checkOne(turns []int) {
	for _, i := range turns {
		b := c.records[i].Turn
		if b.Says == SaysNothing {
			continue
		}
		if b.Says == SaysHeld && len(b.Slots) != b.Permits {
			c.fail("K9", i, "it holds, and has %d numbers for %d permits", len(b.Slots), b.Permits)
		}
		for _, j := range turns {
			a := c.records[j].Turn
			if a.Says == SaysHeld && b.Says == SaysOver && b.End < min(a.Start+a.Safe, c.gives(turns)) {
				c.fail("K9", i, "it is over while it surely holds: %v", c.records[j])
			}
			if a.Says == SaysNothing || a.End > b.Start || b.Looks {
				continue
			}
			lives := b.Says == SaysHeld || b.Says == SaysQueued
			switch {
			case a.Says == SaysOver && lives:
				c.fail("K8", i, "it was over: %v", c.records[j])
			case a.Says == SaysUnknown && lives && !b.Opens && !c.mayOpen(turns, a):
				c.fail("K8", i, "there was no such ticket: %v", c.records[j])
			case a.Says != SaysUnknown && b.Says == SaysUnknown && b.End-a.End < keptEnd:
				c.fail("K8", i, "it was known: %v", c.records[j])
			case a.Says == SaysHeld && b.Says == SaysQueued:
				c.fail("K9", i, "it held: %v", c.records[j])
			case a.Says == SaysHeld && b.Says == SaysHeld &&
				(a.Token != b.Token || !slices.Equal(a.Slots, b.Slots)):
				c.fail("K8", i, "it had another token or other numbers: %v", c.records[j])
			case a.Says == SaysQueued && b.Says == SaysQueued && b.Ahead > a.Ahead:
				c.fail("K8", i, "fewer were ahead of it: %v", c.records[j])
			}
		}
	}
}

// gives() returns the time of the first request that gives the contender's lock back.
func (c *checker) gives(turns []int) time.Duration {
	first := time.Duration(1<<63 - 1)
	for _, i := range turns {
		if t := c.records[i].Turn; t.Gives {
			first = min(first, t.Start)
		}
	}
	return first
}

// mayOpen reports whether a request may have opened a ticket after an answer that there is no ticket: a
// request still under way, or one whose answer was lost.
func (c *checker) mayOpen(turns []int, unknown *Turn) bool {
	return slices.ContainsFunc(turns, func(i int) bool {
		t := c.records[i].Turn
		return t.Opens && (t.Says == SaysNothing || t.End > unknown.Start)
	})
}

// sureHold is the time for which a contender surely holds: from the first answer that says so, until the time
// that an answer promised is over, or the contender asked to give the lock back.
type sureHold struct {
	from, to time.Duration
	record   int // index of the record with the longest promise
	turn     *Turn
}

// excludes() reports whether two holds of one lock exclude each other. They do not if both share the lock, or
// if they have permits with different numbers.
func (h *sureHold) excludes(o *sureHold) bool {
	if h.turn.Permits > 0 {
		both := func(slot int) bool { return slices.Contains(o.turn.Slots, slot) }
		return slices.ContainsFunc(h.turn.Slots, both)
	}
	return !h.turn.Shares || !o.turn.Shares
}

func (c *checker) sureHold(turns []int) (h sureHold) {
	for _, i := range turns {
		t := c.records[i].Turn
		if t.Says != SaysHeld || t.Looks {
			continue
		}
		if h.to == 0 || t.End < h.from {
			h.from = t.End
		}
		if until := t.Start + t.Safe; until > h.to {
			h.to, h.record, h.turn = until, i, t
		}
	}
	h.to = min(h.to, c.gives(turns))
	return h
}

// checkHolds compares the holds of one lock.
func (c *checker) checkHolds(holds []sureHold) {
	slices.SortStableFunc(holds, func(a, b sureHold) int { return cmp.Compare(a.from, b.from) })
	for n := range holds {
		is := &holds[n]
		for m := range n {
			was := &holds[m]
			if !was.excludes(is) {
				continue
			}
			if is.from < was.to {
				c.fail("K9", is.record, "another one surely holds for %v more: %v", was.to-is.from,
					c.records[was.record])
			}
			if is.turn.Token <= was.turn.Token {
				c.fail("K9", is.record, "its token is not greater than that of the hold before: %v",
					c.records[was.record])
			}
		}
	}
}
