package view

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/test/expect"
)

// away is a source without a state.
type away struct{ Source }

func (away) View(func(*state.State)) bool { return false }

// A server that has no state says so, instead of showing no locks.
func TestServerWithoutAStateShowsNoLocks(t *testing.T) {
	v := &View{source: away{}}
	_, err := v.locks(t.Context())
	expect.Is(t, err, errNotServing)
	_, err = v.waitGraph(t.Context(), &query{})
	expect.Is(t, err, errNotServing)
	_, err = v.listLocks(t.Context(), &query{})
	expect.Is(t, err, errNotServing)
	_, err = v.oneSession(t.Context(), &query{name: "0x1"})
	expect.Is(t, err, errNotServing)
}

func TestListOfLocksThatIsNotWhole(t *testing.T) {
	for _, whole := range []bool{true, false} {
		v := &View{source: &told{}}
		v.scans.newest = &scan{at: time.Now(), took: time.Hour, truncated: !whole, total: 77}
		a, err := v.listLocks(t.Context(), &query{values: url.Values{}})
		expect.OK(t, err)
		want := "too many: 77 ephemeral nodes; some locks are not shown or not whole"
		if whole {
			want = ""
		}
		expect.Equal(t, a.(lockList).Truncated, want)
		l := newLone()
		v.source = l
		a, err = v.oneSession(t.Context(), &query{name: admin.Hex(l.client().ID)})
		expect.OK(t, err)
		expect.Equal(t, a.(answer.OneSession).Truncated != "", !whole, "the locks of a session")
	}
}

func TestTimesOfThePage(t *testing.T) {
	f := pageFuncs()["time"].(func(int64) string)
	expect.Equal(t, f(0), "")
	expect.Equal(t, f(1000), "1970-01-01 00:00:01 UTC")
}

// stuck is the connection of a client that reads no more than a part of an answer.
type stuck struct {
	*httptest.ResponseRecorder
	parts, bytes int
	until        time.Time
}

func (s *stuck) SetWriteDeadline(t time.Time) error { s.until = t; return nil }
func (s *stuck) Write(b []byte) (int, error) {
	if s.parts--; s.parts < 0 {
		return 0, os.ErrDeadlineExceeded // at until
	}
	s.bytes += len(b)
	return len(b), nil
}

// A client that does not read its answer soon gives its place away: it has some seconds, and one more for
// each MiB that it has read.
func TestSlowReadersLoseTheirAnswers(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 4<<20)
	for _, parts := range []int{0, 64, 1 << 20} {
		w := &stuck{ResponseRecorder: httptest.NewRecorder(), parts: parts}
		begun := time.Now()
		new(View).sendBytes(w, httptest.NewRequest("GET", "/", nil), "text/plain", body)
		most := 5*time.Second + time.Duration(w.bytes)*time.Second>>20
		expect.That(t, !w.until.IsZero() && w.until.Sub(begun) <= most+time.Since(begun),
			"%d bytes read: the deadline is after %v", w.bytes, w.until.Sub(begun))
		expect.Equal(t, w.bytes == len(body), parts == 1<<20, "%d bytes in %d parts", w.bytes, parts)
	}
}

// unread is the writer of an answer that its client does not read until free is closed.
type unread struct {
	*httptest.ResponseRecorder
	reached, free chan struct{}
}

func (u *unread) Write(b []byte) (int, error) {
	close(u.reached)
	<-u.free
	return len(b), nil
}

// A client that does not read its answer has given its turn away to the next.
func TestSlowReadersHoldNoTurn(t *testing.T) {
	v := &View{costly: make(chan struct{}, 1)}
	ask := func(w http.ResponseWriter) {
		r := httptest.NewRequest("GET", "/", nil)
		v.inTurn(w, r, "this", func(_ context.Context, w http.ResponseWriter) {
			v.sendBytes(w, r, "text/plain", []byte("x"))
		})
	}
	slow := &unread{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() { ask(slow); close(done) }()
	<-slow.reached
	next := httptest.NewRecorder()
	ask(next)
	expect.Equal(t, next.Code, http.StatusOK)
	close(slow.free)
	<-done
}
