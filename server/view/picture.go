package view

import (
	"fmt"
	"strconv"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/server/view/ask"
)

// picture is the wait-for graph as lines and boxes.
type picture struct {
	W, H    int
	Boxes   []box
	Lines   []line
	Summary string
	Note    string
}

type box struct {
	X, Y, TX, TY, SY         int
	Label, Sub, Title, Class string
}

type line struct {
	D, Head, Class, Text, Title string
	Path                        string // path of the lock
	Anchor                      string // SVG's text-anchor: where the text begins or ends
	X, Y                        int
}

// Sizes of the picture.
const (
	maxBoxes  = 60 // how many parties the picture considers; those of deadlocks are among the first
	maxCols   = 3  // columns for the parties that are in no deadlock
	maxRows   = 10
	boxWidth  = 190
	boxHeight = 46
	colWidth  = 420 // leaves room for the label of a line between two columns
	bowWidth  = 310 // room to the right of the last column for bows (lines within a column) and their labels
	bowLabel  = 78  // distance from a box to the label of its bow
	rowHeight = 76
)

// draw() lays a wait graph out in columns. A party stands in a column to the left of the parties that it
// waits for.
func draw(g graphAnswer) *picture {
	if len(g.Edges) == 0 {
		return nil
	}
	n := min(len(g.Parties), maxBoxes)
	level := make([]int, n)
	shown := func(e *recipe.Edge) bool { return e.From < n && e.To < n }
	for range n { // enough rounds: no path through n parties is longer than n steps
		changed := false
		for i := range g.Edges {
			e := &g.Edges[i]
			if !shown(e) || g.Parties[e.From].Cycle != 0 && g.Parties[e.From].Cycle == g.Parties[e.To].Cycle {
				continue
			}
			if level[e.From] <= level[e.To] {
				level[e.From] = level[e.To] + 1
				changed = true
			}
		}
		if !changed {
			break
		}
	}
	p := &picture{Note: "Waiters stand on the left. Dashed: the waiter needs only one of several holders, or " +
		"may not wait at all. Red: a suspected deadlock."}
	last := 0
	for _, l := range level {
		last = max(last, l)
	}
	last = min(last, maxCols-1)
	rows := make([]int, last+1)
	at := make([]int, n) // by party: the index of its box; -1: it has no box
	fits := func(i int) bool { return level[i] <= last && rows[level[i]] < maxRows }
	for _, i := range cyclesFirst(g.Parties[:n]) {
		party := &g.Parties[i]
		if at[i] = -1; party.Cycle == 0 && !fits(i) {
			continue
		}
		at[i], level[i] = len(p.Boxes), min(level[i], last)
		x, y := 10+(last-level[i])*colWidth, 10+rows[level[i]]*rowHeight
		rows[level[i]]++
		b := box{X: x, Y: y, TX: x + 10, TY: y + 19, SY: y + 37, Label: short(answer.Visible(party.Label), 24),
			Sub: short(answer.Visible(subOf(party)), 26)}
		b.Title = party.Session.String() + " " + party.Addr + " " + answer.Visible(party.Reason)
		if party.Cycle != 0 {
			b.Class = "cycle"
		}
		p.Boxes = append(p.Boxes, b)
		p.W, p.H = max(p.W, x+boxWidth+bowWidth), max(p.H, y+boxHeight+10)
	}
	lines := map[[2]int]int{} // by pair of boxes: the line between them, for all locks together
	locks := map[[2]int]int{}
	for i := range g.Edges {
		e := &g.Edges[i]
		if !shown(e) || at[e.From] < 0 || at[e.To] < 0 {
			continue
		}
		pair := [2]int{e.From, e.To}
		locks[pair]++
		if known, ok := lines[pair]; ok {
			l := &p.Lines[known]
			l.Text = strconv.Itoa(locks[pair]) + " locks"
			l.Title += "; " + answer.Visible(e.Path)
			if l.Class == "any" && !e.Any && !e.Watch {
				l.Class = "" // draw the line as certain: at least one of its waits is
			}
			continue
		}
		lines[pair] = len(p.Lines)
		p.Lines = append(p.Lines, lineOf(e, &p.Boxes[at[e.From]], &p.Boxes[at[e.To]], at[e.From]))
	}
	p.Summary = strconv.Itoa(len(g.Parties)) + " parties, " + strconv.Itoa(g.EdgeCount) + " waits, " +
		strconv.Itoa(len(g.Suspected)) + " suspected deadlocks; the table below has the same"
	if shown := len(p.Boxes); shown < len(g.Parties) {
		p.Note = strconv.Itoa(shown) + " of " + ask.Thousands(len(g.Parties)) + " parties. " + p.Note
	}
	return p
}

// cyclesFirst returns the indexes of the parties in the order in which draw() places them. Parties of
// deadlocks come first, so that the picture shows every deadlock whole, and at the top.
func cyclesFirst(parties []partyRow) (order []int) {
	for _, cycle := range []bool{true, false} {
		for i := range parties {
			if (parties[i].Cycle != 0) == cycle {
				order = append(order, i)
			}
		}
	}
	return order
}

// lineOf draws one wait as a line from the waiting party to the party that it waits for. If both are in the
// same column, the line is a bow to the right of it; otherwise it goes from the right side to the left side.
func lineOf(e *recipe.Edge, from, to *box, i int) line {
	l := line{Path: e.Path, Text: shortPath(answer.Visible(e.Path), 28),
		Title: answer.Visible(e.Path) + ": " + answer.Visible(e.FromNode) + " waits for " +
			answer.Visible(e.ToNode)}
	switch {
	case e.Cycle:
		l.Class = "cycle"
	case e.Any, e.Watch:
		l.Class = "any"
	}
	x1, y1, y2 := from.X+boxWidth, from.Y+boxHeight/2, to.Y+boxHeight/2
	if from.X < to.X {
		x2 := to.X
		l.D = fmt.Sprintf("M%d %d C%d %d %d %d %d %d", x1, y1, x1+60, y1, x2-60, y2, x2, y2)
		l.Head = fmt.Sprintf("M%d %d L%d %d L%d %dZ", x2-8, y2-4, x2, y2, x2-8, y2+4)
		l.X, l.Y, l.Anchor = (x1+x2)/2, (y1+y2)/2-4, "middle"
		return l
	}
	y1, y2 = y1+6-12*(i%2), y2+6-12*(i%2)
	bow := 40 + 30*(i%2)
	x2 := to.X + boxWidth
	l.D = fmt.Sprintf("M%d %d C%d %d %d %d %d %d", x1, y1, x1+bow, y1, x2+bow, y2, x2, y2)
	l.Head = fmt.Sprintf("M%d %d L%d %d L%d %dZ", x2+8, y2-4, x2, y2, x2+8, y2+4)
	l.X, l.Y, l.Anchor = x1+bowLabel, (y1+y2)/2-12+32*(i%2), "start"
	return l
}

func subOf(p *partyRow) string {
	switch {
	case p.Reason != "":
		return p.Reason
	case p.Label != p.Session.String():
		return p.Session.String()
	}
	return p.Addr
}

// middle() shortens a long name by cutting its middle out, because names differ at their ends.
func middle(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n/2]) + "…" + string(r[len(r)-(n-n/2-1):])
}

// shortPath keeps the end of a path, because the paths of locks in one directory differ there.
func shortPath(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return "…" + string(r[len(r)-n+1:])
}

func short(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
