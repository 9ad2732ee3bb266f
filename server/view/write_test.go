package view

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/test/expect"
)

// steps is a Source that answers the requests of one action.
type steps struct {
	Source
	at    int
	errs  [3]error
	write state.Outcome
}

func (s *steps) Status(admin.Need) *admin.Status { return &admin.Status{} }

func (s *steps) Do(context.Context, state.Request) (state.Outcome, error) {
	s.at++
	if s.at == 2 {
		return s.write, s.errs[1]
	}
	return state.Outcome{}, s.errs[s.at-1]
}

// An action fails with the first of its steps that fails: its session, the write, or the
// end of the session; and the session is ended whatever becomes of the write.
func TestAnActionFailsWithItsFirstStep(t *testing.T) {
	one, two, three := errors.New("one"), errors.New("two"), errors.New("three")
	for name, c := range map[string]struct {
		errs  [3]error
		write state.Outcome
		want  error
		steps int
	}{
		"no session":  {[3]error{one, nil, nil}, state.Outcome{}, one, 1},
		"no write":    {[3]error{nil, two, nil}, state.Outcome{}, two, 3},
		"neither":     {[3]error{nil, two, three}, state.Outcome{}, two, 3},
		"no end":      {[3]error{nil, nil, three}, state.Outcome{}, three, 3},
		"all is done": {[3]error{}, state.Outcome{}, nil, 3},
	} {
		s := &steps{errs: c.errs, write: c.write}
		if err := (&View{source: s}).write(t.Context(), jute.OpDelete, nil); !errors.Is(err, c.want) ||
			s.at != c.steps {
			t.Errorf("%s: %v after %d steps", name, err, s.at)
		}
	}
	for code, want := range map[jute.ErrCode]int{jute.BadVersion: 409, jute.NoNode: 404} {
		var p *admin.Refusal
		if err := (&View{source: &steps{write: state.Outcome{Code: code}}}).write(t.Context(), jute.OpDelete,
			nil); !errors.As(err, &p) || p.Status != want {
			t.Errorf("%v: %v", code, err)
		}
	}
	if err := (&View{source: &steps{write: state.Outcome{Code: jute.NotEmpty}}}).write(t.Context(),
		jute.OpDelete, nil); err == nil {
		t.Error("a refusal is a success")
	}
}

// However many clients close their sessions at once, few are looked at; none
// that ended otherwise is passed over, and the next look begins behind all.
func TestManyClosedSessionsAreLittleWork(t *testing.T) {
	var list []observe.EndedSession // the newest first
	expired := 0
	for zxid := int64(1000); zxid > 0; zxid-- {
		e := observe.EndedSession{Zxid: zxid, Cause: state.EndClosed}
		if zxid%100 == 0 && zxid < 1000 {
			e.Cause = state.EndExpired
			expired++
		}
		list = append(list, e)
	}
	looks := worthALook(list)
	expect.Equal(t, len(looks), closedLooks+expired,
		"looks at %d closed and %d expired sessions", 1000-expired, expired)
	expect.Equal(t, looks[0].Zxid, 1000, "the next look begins behind")
	for i, e := range looks {
		if i > 0 && e.Zxid >= looks[i-1].Zxid {
			t.Errorf("%d after %d", e.Zxid, looks[i-1].Zxid)
		}
		if e.Cause == state.EndExpired {
			expired--
		}
	}
	expect.Equal(t, expired, 0, "expired sessions are passed over")
}

type leads struct{ Source }

func (leads) Status(admin.Need) *admin.Status { return &admin.Status{Mode: admin.Leader} }

// A server that starts reads in its log of sessions that expired before. They have been told of.
func TestOnlyNewsIsLogged(t *testing.T) {
	var log strings.Builder
	v := &View{source: leads{}, began: time.UnixMilli(5000), o: Options{
		Log: slog.New(slog.NewTextHandler(&log, nil))}}
	v.logExpired(&observe.EndedSession{Session: 1, Cause: state.EndExpired, Time: time.UnixMilli(4000)}, nil)
	v.logExpired(&observe.EndedSession{Session: 2, Cause: state.EndExpired, Time: time.UnixMilli(6000)}, nil)
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "session=0x2") {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}

// In the picture a party stands to the left of those it waits for; parties of a cycle stand in one column,
// their lines bow to the right, and the picture has room for the labels.
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
