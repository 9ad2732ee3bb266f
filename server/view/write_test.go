package view

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// lone is a Source of one state, to which it applies requests at once.
type lone struct {
	Source
	st      *state.State
	out     state.Outcome
	errs    map[jute.OpCode]error
	before  func(jute.OpCode) // is called before a request is applied
	answer  *state.Outcome    // of each multi, in place of its own
	applied []jute.OpCode
}

func newLone() *lone { return &lone{st: state.New("c"), errs: map[jute.OpCode]error{}} }

func (*lone) Conns() []admin.Conn  { return nil }
func (*lone) WatchCount(int64) int { return 0 }

func (l *lone) Status(admin.Need) *admin.Status { return &admin.Status{} }

func (l *lone) View(f func(*state.State)) bool {
	f(l.st)
	return true
}

func (l *lone) Do(_ context.Context, r state.Request) (state.Outcome, error) {
	l.applied = append(l.applied, r.Op)
	if err := l.errs[r.Op]; err != nil {
		return state.Outcome{}, err
	}
	if l.before != nil {
		l.before(r.Op)
	}
	if r.Op == jute.OpMulti && l.answer != nil {
		return *l.answer, nil
	}
	return l.apply(r), nil
}

func (l *lone) apply(r state.Request) state.Outcome {
	entry := (&state.Block{Count: 1, Requests: r.Append(nil)}).Append(state.BeginEntry(nil, 0))
	state.SealEntry(entry, 1)
	if err := l.st.Apply(entry, l); err != nil {
		panic(err)
	}
	return l.out
}

func (*lone) Events(int64, []tree.Event)      {}
func (*lone) Ended(*state.Ending)             {}
func (*lone) Attached(*session.Session, bool) {}
func (*lone) Opened(uint32, int64, uint32)    {}
func (*lone) Replaced()                       {}
func (l *lone) Outcome(_, _ uint32, _ uint64, o *state.Outcome) {
	l.out = *o
	l.out.Reply = bytes.Clone(o.Reply)
}

// client is a session of a lone Source.
func (l *lone) client() session.Session {
	return l.apply(state.Request{Op: state.OpCreateSession, Body: (&state.SessionBody{Timeout: 1000}).Append(nil)}).Session
}

func (l *lone) create(s session.Session, path, data string, flags int32) {
	b := jute.AppendBuffer(jute.AppendString(nil, path), []byte(data))
	b = jute.AppendInt(jute.AppendACL(b, jute.WorldAnyone), flags)
	if out := l.apply(state.Request{Op: jute.OpCreate, Session: s.ID, Gen: s.Gen, Body: b}); out.Code != jute.OK {
		panic(fmt.Sprint(path, ": ", out.Code))
	}
}

func (l *lone) delete(s session.Session, path string) {
	b := jute.AppendInt(jute.AppendString(nil, path), -1)
	if out := l.apply(state.Request{Op: jute.OpDelete, Session: s.ID, Gen: s.Gen, Body: b}); out.Code != jute.OK {
		panic(fmt.Sprint(path, ": ", out.Code))
	}
}

func (*lone) Watching(int64, string) (watching, known bool) { return false, false }
func (*lone) Watchers(string, int) []int64                  { return []int64{1} }

func (l *lone) node(path string) (info tree.Info, ok bool) { return l.st.Tree().Get(path) }

// An action fails with the first of its steps that fails: its session, the write, or the
// end of the session; and the session is ended whatever becomes of the write.
func TestAnActionFailsWithItsFirstStep(t *testing.T) {
	one, two, three := errors.New("one"), errors.New("two"), errors.New("three")
	const begin, write, end = state.OpCreateSession, jute.OpMulti, state.OpExpire
	for name, c := range map[string]struct {
		errs  map[jute.OpCode]error
		want  error
		steps int
	}{
		"no session":  {map[jute.OpCode]error{begin: one}, one, 1},
		"no write":    {map[jute.OpCode]error{write: two}, two, 3},
		"neither":     {map[jute.OpCode]error{write: two, end: three}, two, 3},
		"no end":      {map[jute.OpCode]error{end: three}, three, 3},
		"all is done": {nil, nil, 3},
	} {
		l := newLone()
		l.create(l.client(), "/l", "", 0)
		n, _ := l.node("/l")
		l.errs = c.errs
		body := jute.AppendInt(jute.AppendString(nil, "/l"), 0)
		if err := viewOf(l).write(t.Context(), &recipe.Queue{Lock: recipe.Lock{Path: "/l"}},
			&recipe.Entry{Token: n.Stat.Czxid}, jute.OpDelete, body); !errors.Is(err, c.want) ||
			len(l.applied) != c.steps {
			t.Errorf("%s: %v after %v", name, err, l.applied)
		}
	}
}

// A refused change says why, and none counts as done.
func TestARefusedActionSaysWhy(t *testing.T) {
	body := jute.AppendInt(jute.AppendString(nil, "/l"), 0)
	for name, c := range map[string]struct {
		token  int64 // beside that of the node
		before func(l *lone, s session.Session)
		answer *state.Outcome
		status int
	}{
		"an old token": {1, func(*lone, session.Session) {}, nil, 409},
		"gone":         {0, func(l *lone, s session.Session) { l.delete(s, "/l") }, nil, 404},
		"changed": {0, func(l *lone, s session.Session) {
			l.apply(state.Request{Op: jute.OpSetData, Session: s.ID, Gen: s.Gen,
				Body: jute.AppendInt(jute.AppendBuffer(jute.AppendString(nil, "/l"), nil), -1)})
		}, nil, 409},
		"not empty":      {0, func(l *lone, s session.Session) { l.create(s, "/l/x", "", 0) }, nil, 0},
		"refused":        {0, func(*lone, session.Session) {}, &state.Outcome{Refused: true}, 409},
		"failed at once": {0, func(*lone, session.Session) {}, &state.Outcome{Code: jute.NoAuth}, 0},
	} {
		l := newLone()
		s := l.client()
		l.create(s, "/l", "", 0)
		n, _ := l.node("/l")
		l.answer = c.answer
		l.before = func(op jute.OpCode) {
			if op == jute.OpMulti {
				c.before(l, s)
			}
		}
		err := viewOf(l).write(t.Context(), &recipe.Queue{Lock: recipe.Lock{Path: "/l"}},
			&recipe.Entry{Token: n.Stat.Czxid + c.token}, jute.OpDelete, body)
		var p *port.Refusal
		if errors.As(err, &p); err == nil || (p != nil) != (c.status != 0) || p != nil && p.Status != c.status {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An action reaches only the contender that the operator saw. It does not reach one that created the node
// again before the request is applied, with the same version. Other nodes that appear next to it do not
// prevent the action.
func TestAnActionReachesTheContenderThatWasSeen(t *testing.T) {
	const record = `{"v":1,"host":"web"}`
	again := func(l *lone, a, b session.Session) {
		l.delete(a, "/l/x")
		l.create(b, "/l/x", record, jute.FlagEphemeral)
	}
	for name, c := range map[string]struct {
		before func(l *lone, a, b session.Session)
		once   bool
		done   bool
	}{
		"nothing happens":        {func(*lone, session.Session, session.Session) {}, false, true},
		"another client's node":  {again, true, false},
		"the same client's node": {func(l *lone, a, _ session.Session) { again(l, a, a) }, true, false},
		"in a new directory": {func(l *lone, a, b session.Session) {
			l.delete(a, "/l/x")
			l.delete(a, "/l")
			l.create(b, "/l", "", 0)
			l.create(b, "/l/x", record, jute.FlagEphemeral)
		}, true, false},
		"a node beside it comes": {func(l *lone, a, _ session.Session) { l.create(a, "/l/y", "", jute.FlagEphemeral) }, true, true},
		"nodes come all the time": {func(l *lone, a, _ session.Session) {
			l.create(a, "/l/y-", "", jute.FlagEphemeralSequential)
		}, false, false},
	} {
		for _, asks := range []bool{false, true} {
			l := newLone()
			a, b := l.client(), l.client()
			l.create(a, "/l", "", 0)
			l.create(a, "/l/x", record, jute.FlagEphemeral)
			was, _ := l.node("/l/x")
			v := viewOf(l)
			plan := v.planBreak
			if asks {
				plan = v.planAsk
			}
			s, err := plan(t.Context(), &action{Path: "/l/x", Token: strconv.FormatInt(was.Czxid, 10)})
			must.OK(t, err)
			l.before = func(op jute.OpCode) {
				if op == jute.OpMulti {
					c.before(l, a, b)
					if c.once {
						l.before = nil
					}
				}
			}
			var p *port.Refusal
			err = s.do(t.Context())
			expect.That(t, c.done && err == nil || errors.As(err, &p) && p.Status == 409, "%s: %v", name, err)
			is, there := l.node("/l/x")
			changed := !there || asks && strings.Contains(string(is.Data), "revoke")
			expect.Equal(t, changed, c.done, "%s, asks %v: %q", name, asks, is.Data)
			for _, child := range l.st.Tree().Children("/l") {
				expect.That(t, child[0] == 'x' || child[0] == 'y', "%s: %s is left behind", name, child)
			}
		}
	}
}

// A number is repeated only if the directory was created again: nodes created next to it do not prevent an
// action.
func TestAnActionReachesANumberedContenderInABusyQueue(t *testing.T) {
	const name = "x-lock-0000000000"
	const record = `{"v":1,"host":"web"}`
	for _, again := range []bool{false, true} {
		l := newLone()
		a := l.client()
		l.create(a, "/l", "", 0)
		l.create(a, "/l/x-lock-", record, jute.FlagEphemeralSequential)
		was, _ := l.node("/l/" + name)
		s, err := viewOf(l).planBreak(t.Context(), &action{Path: "/l", Node: name,
			Token: strconv.FormatInt(was.Czxid, 10)})
		must.OK(t, err)
		l.before = func(op jute.OpCode) {
			switch {
			case op != jute.OpMulti:
			case again:
				l.before = nil
				l.delete(a, "/l/"+name)
				l.delete(a, "/l")
				l.create(a, "/l", "", 0)
				l.create(a, "/l/x-lock-", record, jute.FlagEphemeralSequential)
			default:
				l.create(a, "/l/x-lock-", "", jute.FlagEphemeralSequential)
			}
		}
		expect.Equal(t, s.do(t.Context()) == nil, !again, "made again: %v", again)
		_, there := l.node("/l/" + name)
		expect.Equal(t, there, again, "the node is there; made again: %v", again)
	}
}

// Each look at the ended sessions begins behind those of the look before.
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

// news is a Source with a list of ended sessions, the newest first.
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

func (leads) Status(admin.Need) *admin.Status { return &admin.Status{Mode: admin.Leader} }

// A server that starts reads in its log of sessions that expired before. They have been told of.
func TestOnlyNewsIsLogged(t *testing.T) {
	var log strings.Builder
	v := &View{source: leads{}, began: time.UnixMilli(5000), o: Options{
		Log: slog.New(slog.NewTextHandler(&log, nil))}}
	v.logExpired(&observe.EndedSession{Session: 1, Cause: state.EndExpired, Time: time.UnixMilli(4000)})
	v.logExpired(&observe.EndedSession{Session: 2, Cause: state.EndExpired, Time: time.UnixMilli(6000)})
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "session=0x2") {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}

// In the picture a party is to the left of those it waits for. The parties of a cycle are in one column with
// their lines bowed to the right, and there is room for the labels.
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
	x := func(i int) int { return p.Boxes[i].X } // the deadlock comes first
	if len(p.Boxes) != 5 || len(p.Lines) != 5 || x(2) >= x(3) || x(3) >= x(4) || x(0) != x(1) ||
		p.Boxes[0].Y >= p.Boxes[1].Y || p.Boxes[1].Y >= p.Boxes[4].Y {
		t.Fatalf("%+v", p)
	}
	if p.Boxes[0].Class != "cycle" || p.Boxes[2].Class != "" || p.Lines[1].Class != "any" ||
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
		right := l.X + glyph*len([]rune(l.Text))
		if l.Anchor != "start" || l.X <= x(0)+boxWidth || right > p.W || l.Y <= 0 || l.Y >= p.H {
			t.Errorf("the label of %s ends at %d of %d: %+v", l.Path, right, p.W, l)
		}
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
