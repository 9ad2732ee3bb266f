package view

import (
	"net/url"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/server/view/look"
	"github.com/zlockd/zlockd/test/expect"
)

// The type away is a source without a state.
type away struct{ Source }

func (away) View(func(*state.State)) bool { return false }

// A server that has no state says so, instead of showing no locks.
func TestServerWithoutAStateShowsNoLocks(t *testing.T) {
	v := viewOf(away{})
	_, err := v.look.Locks(t.Context())
	expect.Is(t, err, ask.ErrNotServing)
	_, err = v.waitGraph(t.Context(), &ask.Query{})
	expect.Is(t, err, ask.ErrNotServing)
	_, err = v.listLocks(t.Context(), &ask.Query{})
	expect.Is(t, err, ask.ErrNotServing)
	_, err = v.oneSession(t.Context(), &ask.Query{Name: "0x1"})
	expect.Is(t, err, ask.ErrNotServing)
}

// The type alone is a source with a state and without connections.
type alone struct {
	Source
	st *state.State
}

func (*alone) Conns() []report.Conn                          { return nil }
func (*alone) WatchCount(int64) int                          { return 0 }
func (*alone) Status(report.Need) *report.Status             { return &report.Status{} }
func (*alone) Watching(int64, string) (watching, known bool) { return false, false }
func (*alone) Watchers(string, int) []int64                  { return nil }

func (l *alone) View(f func(*state.State)) bool {
	f(l.st)
	return true
}

func TestListOfLocksThatIsNotWhole(t *testing.T) {
	for _, whole := range []bool{true, false} {
		l := &alone{st: state.New("c")}
		id := l.st.Sessions().Create(6000, [16]byte{}, 1, "10.0.0.1", 0).ID
		v := viewOf(l)
		v.look = look.With(l, &look.Scan{Truncated: !whole, Total: 77})
		a, err := v.listLocks(t.Context(), &ask.Query{Values: url.Values{}})
		expect.OK(t, err)
		want := "too many: 77 ephemeral nodes; some locks are not shown or not whole"
		if whole {
			want = ""
		}
		expect.Equal(t, a.(lockList).Truncated, want)
		a, err = v.oneSession(t.Context(), &ask.Query{Name: report.Hex(id)})
		expect.OK(t, err)
		expect.Equal(t, a.(answer.OneSession).Truncated != "", !whole, "the locks of a session")
	}
}

func TestTimesOfThePage(t *testing.T) {
	f := pageFuncs()["time"].(func(int64) string)
	expect.Equal(t, f(0), "")
	expect.Equal(t, f(1000), "1970-01-01 00:00:01 UTC")
}
