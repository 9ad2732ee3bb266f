package history

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
)

// The type turns writes the history of one lock by hand. Each request is sent after the answer to the one
// before.
type turns struct {
	records []Record
	now     time.Duration
}

func (h *turns) add(who string, t Turn) *Turn {
	t.Lock, t.Contender = "/l", who
	if t.End == 0 {
		t.Start, t.End = h.now+1, h.now+2
	}
	h.now = max(h.now, t.End)
	h.records = append(h.records, Record{Turn: &t})
	return &t
}

func (h *turns) held(who string, token int64, safe time.Duration) {
	h.add(who, Turn{Says: SaysHeld, Token: token, Safe: safe, Opens: true})
}

func (h *turns) queued(who string, ahead int) {
	h.add(who, Turn{Says: SaysQueued, Ahead: ahead, Opens: true})
}

func (h *turns) says(who string, s Say)  { h.add(who, Turn{Says: s, Opens: true}) }
func (h *turns) gives(who string, s Say) { h.add(who, Turn{Says: s, Gives: true}) }

// draw() records a granted draw from a rate of four draws in a time of 100.
func (h *turns) draw(d Draw) {
	d.Rate, d.Limit, d.Per, d.OK = "/r", 4, 100, true
	h.records = append(h.records, Record{Draw: &d})
}

// draws() grants a draw at each of these times, and then repeats the first.
func (h *turns) draws(at ...time.Duration) {
	for n, a := range at {
		h.draw(Draw{At: a, Secret: []string{"first", ""}[min(n, 1)]})
	}
	h.draw(Draw{At: at[0], Secret: "first", Told: true})
}

func TestTurns(t *testing.T) {
	for _, c := range []struct {
		name, rule string
		run        func(h *turns, bug bool)
	}{
		{"two hold", "K9", func(h *turns, bug bool) {
			h.held("a", 5, 100)
			h.now += pick(bug, time.Duration(50), 150)
			h.held("b", 6, 100)
		}},
		{"one holds beside an answer that comes late", "K9", func(h *turns, bug bool) {
			h.held("a", 5, 100)
			safe := pick(bug, time.Duration(300), 100)
			h.add("a", Turn{Says: SaysHeld, Token: 5, Safe: safe, Start: 10, End: 90})
			h.now = 150
			h.held("b", 6, 100)
		}},
		{"held while it is given", "K9", func(h *turns, bug bool) {
			h.held("a", 5, 100)
			if !bug {
				h.gives("a", SaysNothing)
			}
			h.held("b", 6, 100)
		}},
		{"a third holds beside a long hold", "K9", func(h *turns, bug bool) {
			h.held("a", 5, pick(bug, time.Duration(100), 10))
			h.now = 20
			h.held("b", 6, 5)
			h.now = 40
			h.held("c", 7, 5)
		}},
		{"token falls", "K9", func(h *turns, bug bool) {
			h.held("a", 5, 100)
			h.now += 150
			h.held("b", pick(bug, int64(4), 6), 100)
		}},
		{"hold that ends too early", "K9", func(h *turns, bug bool) {
			h.held("a", 5, 100)
			h.now += pick(bug, time.Duration(50), 150)
			h.says("a", SaysOver)
		}},
		{"hold that is lost", "K9", func(h *turns, bug bool) {
			h.held("a", 5, 100)
			h.add("a", Turn{Says: SaysQueued, Ahead: 1, Looks: !bug})
		}},
		{"a reader beside a writer", "K9", func(h *turns, bug bool) {
			h.add("a", Turn{Says: SaysHeld, Token: 5, Safe: 100, Shares: true})
			h.add("b", Turn{Says: SaysHeld, Token: 4, Safe: 100, Shares: true})
			h.now += pick(bug, time.Duration(50), 150)
			h.held("c", 6, 100)
		}},
		{"a writer beside a reader that came long before", "K9", func(h *turns, bug bool) {
			h.add("a", Turn{Says: SaysHeld, Token: 5, Safe: pick(bug, time.Duration(300), 30), Shares: true})
			h.now += 50
			h.add("b", Turn{Says: SaysHeld, Token: 6, Safe: 10, Shares: true})
			h.now += 50
			h.held("c", 7, 100)
		}},
		{"a reader with a writer's token", "K9", func(h *turns, bug bool) {
			h.held("a", 5, 10)
			h.now += 50
			h.add("b", Turn{Says: SaysHeld, Token: pick(bug, int64(4), 6), Safe: 100, Shares: true})
		}},
		{"one number twice", "K9", func(h *turns, bug bool) {
			h.add("a", Turn{Says: SaysHeld, Token: 5, Safe: 100, Permits: 2, Slots: []int{1, 3}})
			h.add("b", Turn{Says: SaysHeld, Token: 6, Safe: 100, Permits: 1, Slots: []int{pick(bug, 3, 2)}})
		}},
		{"a permit without a number", "K9", func(h *turns, bug bool) {
			slots := pick(bug, []int{1}, []int{1, 3})
			h.add("a", Turn{Says: SaysHeld, Token: 5, Safe: 100, Permits: 2, Slots: slots})
		}},
		{"other numbers", "K8", func(h *turns, bug bool) {
			h.add("a", Turn{Says: SaysHeld, Token: 5, Safe: 100, Permits: 1, Slots: []int{1}})
			h.add("a", Turn{Says: SaysHeld, Token: 5, Safe: 100, Permits: 1, Slots: []int{pick(bug, 2, 1)}})
		}},
		{"more draws than the limit", "K12", func(h *turns, bug bool) {
			h.draws(0, 10, 20, 20, pick(bug, time.Duration(99), 100), 110, 120, 120)
		}},
		{"a draw made again", "K12", func(h *turns, bug bool) {
			h.draw(Draw{Secret: "a", At: 5})
			h.draw(Draw{Secret: "a", At: pick(bug, time.Duration(6), 5), Told: true})
			h.draw(Draw{Secret: "a", At: 5 + keptDraw})
		}},
		{"a draw made twice at once", "K12", func(h *turns, bug bool) {
			h.draw(Draw{Secret: "a", At: 5, Told: !bug})
			h.draw(Draw{Secret: "a", At: 5})
		}},
		{"two tokens", "K8", func(h *turns, bug bool) {
			h.held("a", 5, 100)
			h.held("a", pick(bug, int64(6), 5), 100)
		}},
		{"place that falls", "K8", func(h *turns, bug bool) {
			h.queued("a", 2)
			h.queued("a", pick(bug, 3, 1))
		}},
		{"over and back", "K8", func(h *turns, bug bool) {
			h.held("a", 5, 100)
			h.gives("a", SaysOver)
			if bug {
				h.held("a", 5, 100)
			} else {
				h.add("a", Turn{Says: SaysHeld, Token: 5, Safe: 100, Start: 3, End: 9})
			}
		}},
		{"unknown and there", "K8", func(h *turns, bug bool) {
			if !bug {
				h.says("a", SaysNothing)
			}
			h.gives("a", SaysUnknown)
			h.add("a", Turn{Says: SaysQueued})
		}},
		{"forgotten", "K8", func(h *turns, bug bool) {
			h.gives("a", SaysOver)
			h.now += pick(bug, time.Minute, time.Hour)
			h.gives("a", SaysUnknown)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var right, wrong turns
			c.run(&right, false)
			expect.Equal(t, len(Check(right.records, Options{})), 0, "violations of a right history: %v",
				Check(right.records, Options{}))
			c.run(&wrong, true)
			found := map[string]bool{}
			for _, v := range Check(wrong.records, Options{}) {
				found[v.Rule] = true
			}
			expect.That(t, found[c.rule] && len(found) == 1, "found %v, want %s", found, c.rule)
		})
	}
}
