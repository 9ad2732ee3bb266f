package view

import (
	"strings"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
)

// In the picture a party stands to the left of those it waits for; parties of a cycle
// stand in one column, their lines bow to the right, and the picture has room for the
// labels.
func TestPictureOfWaits(t *testing.T) {
	party := func(session int64, cycle int) partyRow {
		return partyRow{Label: "p", Party: recipe.Party{Session: recipe.Session(session), Cycle: cycle}}
	}
	const long = "/applications/with-a-long-name/orders/"
	g := &graphAnswer{
		Parties: []partyRow{party(1, 0), party(2, 0), party(3, 0), party(4, 1), party(5, 1)},
		Edges: []recipe.Edge{
			{From: 0, To: 1, Path: "/a"}, {From: 1, To: 2, Path: "/b", Any: true}, {From: 0, To: 2, Path: "/c"},
			{From: 0, To: 2, Path: "/d"},
			{From: 3, To: 4, Path: long + "x", Cycle: true}, {From: 4, To: 3, Path: long + "y", Cycle: true},
		},
		EdgeCount: 6, Suspected: []recipe.Cycle{{}},
	}
	p := draw(g)
	x := func(i int) int { return p.Boxes[i].X }
	if len(p.Boxes) != 5 || len(p.Lines) != 5 || x(0) >= x(1) || x(1) >= x(2) || x(3) != x(4) ||
		p.Boxes[3].Y == p.Boxes[4].Y {
		t.Fatalf("%+v", p)
	}
	if p.Boxes[3].Class != "cycle" || p.Boxes[0].Class != "" || p.Lines[1].Class != "any" ||
		p.Lines[3].Class != "cycle" || p.Lines[0].Class != "" {
		t.Errorf("%+v", p)
	}
	if l := p.Lines[2]; l.Text != "2 locks" || !strings.Contains(l.Title, "/c") ||
		!strings.Contains(l.Title, "/d") {
		t.Errorf("%+v", l)
	}
	for i, l := range p.Lines[3:] {
		if want := []string{"orders/x", "orders/y"}[i]; !strings.HasSuffix(l.Text, want) ||
			l.Path != long+want[len(want)-1:] {
			t.Errorf("%q is shown of %s", l.Text, l.Path)
		}
		const glyph = 7 // pixels of a letter, on average
		if right := l.X + glyph*len([]rune(l.Text)); l.Anchor != "start" || l.X <= x(3)+boxWidth || right > p.W ||
			l.Y <= 0 || l.Y >= p.H {
			t.Errorf("the label of %s ends at %d of %d: %+v", l.Path, right, p.W, l)
		}
	}
	expect.That(t, p.Lines[3].Y != p.Lines[4].Y, "two labels stand at one place")
	expect.That(t, draw(&graphAnswer{}) == nil, "nothing has a picture")
}

func TestWaysUp(t *testing.T) {
	for path, want := range map[string]string{"/": "/=/", "/a": "/=/ a=/a",
		"/a/bc/d": "/=/ a=/a bc=/a/bc d=/a/bc/d"} {
		var got []string
		for _, c := range ups(path) {
			got = append(got, c.Name+"="+c.Path)
		}
		expect.Equal(t, strings.Join(got, " "), want, "above %s: %v", path, got)
	}
}
