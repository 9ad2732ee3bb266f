package view

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Each time tellEnded asks for ended sessions, it asks only for those that ended after the sessions it
// already knows.
func TestEndedSessionsAreSeenOnce(t *testing.T) {
	source := &news{list: []observe.EndedSession{{Zxid: 1000, Cause: state.EndClosed}},
		news: make(chan struct{}, 1), asked: make(chan int64)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go viewOf(source).tellEnded(ctx)
	for _, since := range []int64{0, 1000} {
		source.news <- struct{}{}
		expect.Equal(t, <-source.asked, since, "a look begins behind")
	}
}

// The type news is a Source with a list of ended sessions, the newest first.
type news struct {
	told
	list  []observe.EndedSession
	news  chan struct{}
	asked chan int64
}

func (s *news) EndedNews() <-chan struct{} { return s.news }
func (s *news) EndedSince(zxid int64) []observe.EndedSession {
	s.asked <- zxid
	return slices.DeleteFunc(slices.Clone(s.list), func(e observe.EndedSession) bool { return e.Zxid <= zxid })
}

type leads struct{ Source }

func (leads) Status(report.Need) *report.Status { return &report.Status{Mode: report.Leader} }

// A starting server reads in its log about sessions that expired before. It does not log these ends again.
func TestOnlyNewsIsLogged(t *testing.T) {
	var log strings.Builder
	v := &View{source: leads{}, began: time.UnixMilli(5000), o: Options{
		Log: slog.New(slog.NewTextHandler(&log, nil))}}
	v.logExpired(&observe.EndedSession{Session: 1, Cause: state.EndExpired, Time: time.UnixMilli(4000)})
	v.logExpired(&observe.EndedSession{Session: 2, Cause: state.EndExpired, Time: time.UnixMilli(6000)})
	n := strings.Count(log.String(), "\n")
	expect.Equal(t, n, 1)
	expect.Has(t, log.String(), "session=0x2", "log")
}

// In the picture, each party is to the left of the parties that it waits for. The parties of a cycle are in
// one column, and their lines bow to the right. The picture has room for the labels.
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
	p := draw(*g)
	x := func(i int) int { return p.Boxes[i].X } // boxes 0 and 1 are the parties of the deadlock
	must.Equal(t, len(p.Boxes), 5, "number of boxes %v", p.Boxes)
	must.Equal(t, len(p.Lines), 5, "number of lines %v", p.Lines)
	must.That(t, x(2) < x(3), "%+v", p)
	must.That(t, x(3) < x(4), "%+v", p)
	must.Equal(t, x(0), x(1))
	must.That(t, p.Boxes[0].Y < p.Boxes[1].Y, "%+v", p)
	must.That(t, p.Boxes[1].Y < p.Boxes[4].Y, "%+v", p)
	expect.Equal(t, p.Boxes[0].Class, "cycle", "class")
	expect.Equal(t, p.Boxes[2].Class, "", "class")
	expect.Equal(t, p.Lines[1].Class, "any", "class")
	expect.Equal(t, p.Lines[3].Class, "cycle", "class")
	expect.Equal(t, p.Lines[0].Class, "", "class")
	l := p.Lines[2]
	expect.Equal(t, l.Text, "2 locks", "text")
	expect.Has(t, l.Title, "/c", "title")
	expect.Has(t, l.Title, "/d", "title")
	for i, l := range p.Lines[3:] {
		want := []string{"orders/x", "orders/y"}[i]
		expect.That(t, strings.HasSuffix(l.Text, want), "%q is shown of %s", l.Text, l.Path)
		expect.Equal(t, l.Path, long+want[len(want)-1:], "path")
		const glyph = 7 // pixels of a letter, on average
		right := l.X + glyph*len([]rune(l.Text))
		expect.Equal(t, l.Anchor, "start", "the label of %s ends at %d of %d: anchor", l.Path, right, p.W)
		expect.That(t, l.X > x(0)+boxWidth, "the label of %s ends at %d of %d: %+v", l.Path, right, p.W, l)
		expect.That(t, right <= p.W, "the label of %s ends at %d of %d: %+v", l.Path, right, p.W, l)
		expect.That(t, l.Y > 0, "the label of %s ends at %d of %d: %+v", l.Path, right, p.W, l)
		expect.That(t, l.Y < p.H, "the label of %s ends at %d of %d: %+v", l.Path, right, p.W, l)
	}
	expect.That(t, p.Lines[3].Y != p.Lines[4].Y, "two labels stand at one place")
	expect.That(t, draw(graphAnswer{}) == nil, "nothing has a picture")
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
