package act

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/look"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// The type lone is a Source with one state. It applies each request to this state at once.
type lone struct {
	Source
	st      *state.State
	out     state.Outcome
	errs    map[jute.OpCode]error
	before  func(jute.OpCode) // is called before a request is applied
	answer  *state.Outcome    // if not nil, the outcome of each multi
	applied []jute.OpCode
}

func newLone() *lone { return &lone{st: state.New("c"), errs: map[jute.OpCode]error{}} }

func (*lone) Conns() []report.Conn { return nil }

func (*lone) WatchCount(int64) int { return 0 }

func (l *lone) Status(report.Need) *report.Status { return &report.Status{} }

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
	entry := (&entries.Block{Count: 1, Requests: r.Append(nil)}).Append(entries.Begin(nil, 0))
	entries.Seal(entry, 1)
	if err := l.st.Apply(entry, l); err != nil {
		panic(err)
	}
	return l.out
}

func (*lone) Events(int64, []tree.Event) {}

func (*lone) Ended(*state.Ending) {}

func (*lone) Attached(*session.Session, bool) {}

func (*lone) Opened(uint32, int64, uint32) {}

func (*lone) Replaced() {}

func (l *lone) Outcome(_, _ uint32, _ uint64, o *state.Outcome) {
	l.out = *o
	l.out.Reply = bytes.Clone(o.Reply)
}

// client() makes a session of a lone Source.
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

func (*lone) Watchers(string, int) []int64 { return []int64{1} }

func (l *lone) node(path string) (info tree.Info, ok bool) { return l.st.Tree().Get(path) }

// An action begins a session, writes, and ends the session. It returns the error of the first of these steps
// that fails. It ends the session even if the write fails.
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
		err := edit(t.Context(), actorOf(l).source,
			&recipe.Queue{Lock: recipe.Lock{Path: "/l"}}, &recipe.Entry{Token: n.Stat.Czxid},
			jute.OpDelete, body)
		expect.Is(t, err, c.want, "%s", name)
		expect.Equal(t, len(l.applied), c.steps, "%s: number of applied", name)
	}
}

// A change that is refused returns an error that says why.
func TestARefusedActionSaysWhy(t *testing.T) {
	body := jute.AppendInt(jute.AppendString(nil, "/l"), 0)
	for name, c := range map[string]struct {
		token  int64 // added to the node's token, so that the token is wrong unless this is 0
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
		err := edit(t.Context(), actorOf(l).source, &recipe.Queue{Lock: recipe.Lock{Path: "/l"}},
			&recipe.Entry{Token: n.Stat.Czxid + c.token}, jute.OpDelete, body)
		var p *port.Refusal
		if errors.As(err, &p); err == nil || (p != nil) != (c.status != 0) || p != nil && p.Status != c.status {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An action reaches only the contender that the operator saw. If the contender's node is removed and created
// again before the action, the action fails, although the new node has the same version. Nodes that appear
// beside it do not prevent the action, unless new ones come again and again.
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
			v := actorOf(l)
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

// An action names a contender by its number. It fails if the directory was removed and created again, because
// then another node can have this number. It does not fail because other contenders come.
func TestAnActionReachesANumberedContenderInABusyQueue(t *testing.T) {
	const name = "x-lock-0000000000"
	const record = `{"v":1,"host":"web"}`
	for _, again := range []bool{false, true} {
		l := newLone()
		a := l.client()
		l.create(a, "/l", "", 0)
		l.create(a, "/l/x-lock-", record, jute.FlagEphemeralSequential)
		was, _ := l.node("/l/" + name)
		s, err := actorOf(l).planBreak(t.Context(), &action{Path: "/l", Node: name,
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

// actorOf returns an actor on a source.
func actorOf(s Source) *Actor { return &Actor{source: s, look: look.New(s, false)} }

// The type hands is a source that counts the calls of HandOver and TakeSnapshot.
type hands struct {
	Source
	status report.Status
	fails  error
	handed int
}

func (s *hands) Status(report.Need) *report.Status { return &s.status }
func (s *hands) HandOver(context.Context) error    { s.handed++; return s.fails }
func (s *hands) TakeSnapshot() error               { s.handed++; return s.fails }

func TestOperatorsActionsOnOneServer(t *testing.T) {
	two := []status.Member{{ID: 1}, {ID: 2}}
	for name, c := range map[string]struct {
		node  status.Node
		dir   string
		fails error
		hand  string // the error of hand-over
		snap  string // the error of snapshot
	}{
		"alone":    {status.Node{ID: 1, Leader: 1, Members: two[:1]}, "", nil, "runs alone", "in memory"},
		"headless": {status.Node{ID: 1, Members: two}, "/d", nil, "no server leads", ""},
		"other":    {status.Node{ID: 1, Leader: 2, Members: two}, "/d", nil, "ask server 2", ""},
		"leader":   {status.Node{ID: 1, Leader: 1, Members: two}, "/d", nil, "", ""},
		"fails": {status.Node{ID: 1, Leader: 1, Members: two}, "/d", errors.New("so"),
			"leadership was not handed over: so", "no snapshot was written: so"},
	} {
		s := &hands{fails: c.fails, status: report.Status{Node: c.node, Config: report.Config{DataDir: c.dir}}}
		v := actorOf(s)
		for want, plan := range map[string]func(context.Context, *action) (*step, error){
			c.hand: v.planHandOver, c.snap + " ": v.planSnapshot} {
			st, err := plan(t.Context(), nil)
			if planned := s.handed; err == nil {
				err = st.do(t.Context())
				expect.Equal(t, s.handed, planned+1, "%s", name)
			}
			if want = strings.TrimSpace(want); want == "" {
				expect.OK(t, err, "%s", name)
				continue
			}
			var no *port.Refusal
			if expect.That(t, errors.As(err, &no), "%s: %v", name, err) {
				expect.Equal(t, no.Status, 409, "%s: status", name)
				expect.Has(t, no.Text, want, "%s: text", name)
			}
		}
	}
}
