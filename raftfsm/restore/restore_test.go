package restore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/stream"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// world is a Restorer at a server without a leader. Tests change its state.
type world struct {
	*Restorer
	state            *state.State
	refuses, diskLow bool
	ended            chan struct{}
}

func newWorld() *world {
	w := &world{state: state.New("c"), ended: make(chan struct{})}
	w.Restorer = New(Options{ID: 1, Stream: stream.New(), View: func(f func(*state.State)) { f(w.state) },
		Serving: func() (bool, string) { return false, "there is no leader" },
		Refuses: func() bool { return w.refuses }, DiskLow: func() bool { return w.diskLow }, Ended: w.ended,
		Now: time.Now, Rand: rand.Reader})
	return w
}

// apply() applies an entry with one request, which the state must accept.
func (w *world) apply(t *testing.T, r state.Request) {
	t.Helper()
	bl := entries.Block{Count: 1, Requests: r.Append(nil)}
	entry := bl.Append(entries.Begin(nil, 0))
	entries.Seal(entry, 1)
	must.OK(t, w.state.Apply(entry, sink{}))
}

// sink ignores what the state tells it.
type sink struct{}

func (sink) Events(int64, []tree.Event)                     {}
func (sink) Ended(*state.Ending)                            {}
func (sink) Attached(*session.Session, bool)                {}
func (sink) Opened(uint32, int64, uint32)                   {}
func (sink) Replaced()                                      {}
func (sink) Outcome(uint32, uint32, uint64, *state.Outcome) {}

// A server runs one restore at a time. Without a leader it gives up the restore, and nothing is changed.
func TestSecondRestoreIsRefused(t *testing.T) {
	w := newWorld()
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{})
	w.o.DiskLow = func() bool { close(began); return false }
	first := make(chan error)
	go func() { first <- expect.Err(w.Restore(ctx, strings.NewReader("0123456789"), 10, false)) }()
	<-began
	expect.Is(t, expect.Err(w.Restore(t.Context(), nil, 0, false)), ErrRestoring)
	cancel()
	err := <-first
	must.Fails(t, err)
	expect.Equal(t, err.Error(), "the restore was given up, and nothing was changed: there is no leader")
}

// A refused piece ends the restore, whether one piece is under way or as many as allowed.
func TestPieceThatIsRefusedEndsARestore(t *testing.T) {
	w := newWorld()
	reply := []byte("because")
	for _, test := range []struct {
		what string
		o    state.Outcome
		want string
	}{
		{"refused", state.Outcome{Code: jute.BadArguments, Reply: reply}, "nothing was changed: because"},
		{"another", state.Outcome{Code: state.Occupied, Reply: reply}, "another restore is under way, because"},
		{"unknown", state.Outcome{Unknown: true}, "this server fell behind"},
		{"moved", state.Outcome{Refused: true}, "this server fell behind"},
	} {
		for _, out := range []int{1, piecesOut} { // one piece, or as many as allowed
			r := w.begun(state.Staging{Size: int64(out/piecesOut) * 10})
			r.out = out
			r.done.Done(&test.o, nil)
			err := r.send(t.Context(), strings.NewReader("0123456789"))
			if expect.Fails(t, err, "%s, %d under way", test.what, out) {
				expect.Has(t, err.Error(), test.want, "%s, %d under way", test.what, out)
			}
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r := w.begun(state.Staging{Size: 10})
	for _, err := range []error{r.begin(gone), r.send(gone, strings.NewReader("0123456789"))} {
		if expect.Fails(t, err, "without a leader") {
			expect.Has(t, err.Error(), "nothing was changed")
		}
	}
	w.diskLow = true
	expect.Equal(t, r.begin(t.Context()), errLowDisk)
	w.refuses, w.diskLow = true, false
	expect.Equal(t, r.begin(t.Context()), errLowDisk)
	expect.Equal(t, r.send(t.Context(), strings.NewReader("0123456789")), errLowDisk)
}

// If the outcome of a restore does not arrive, the result is read from the state. If the state does not show
// the result, it is reported as not known.
func TestEndOfARestoreIsTold(t *testing.T) {
	w := newWorld()
	body := state.SessionBody{Timeout: 10_000, Owner: 1, Addr: "10.0.0.1"}
	w.apply(t, state.Request{Op: state.OpCreateSession, Body: body.Append(nil)})
	must.That(t, w.state.Zxid() > 0, "the state has no zxid")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	end := func(ctx context.Context, id int64, outcomes ...state.Outcome) (Restored, error) {
		r := w.begun(state.Staging{ID: id})
		for _, o := range outcomes {
			r.done.Done(&o, nil)
		}
		return r.finish(ctx)
	}
	_, err := end(t.Context(), 5, state.Outcome{Code: jute.BadArguments, Reply: []byte("because")})
	must.Fails(t, err)
	expect.Equal(t, err.Error(), "the restore was refused, and nothing was changed: because")
	for _, o := range [][]state.Outcome{{{Unknown: true}}, {{Refused: true}}, nil} {
		ctx := t.Context()
		if o == nil {
			ctx = over
		}
		_, err := end(ctx, 5, o...)
		expect.Is(t, err, ErrNotKnown, "%+v", o)
		made, err := end(ctx, 0, o...) // in the state, 0 is the id of the last restore, so its result is known
		expect.OK(t, err, "%+v", o)
		expect.Equal(t, made.Zxid, w.state.Zxid(), "%+v", o)
	}
	expect.Fails(t, expect.Err(end(t.Context(), 5, state.Outcome{Reply: []byte{1}})), "an answer that is cut")
	r := w.begun(state.Staging{})
	expect.Equal(t, fmt.Sprint(expect.Err(r.wait(over))), "there is no leader")
	w.o.Serving = func() (bool, string) { return true, "" }
	expect.Is(t, expect.Err(r.wait(over)), context.Canceled)
	close(w.ended)
	expect.Is(t, expect.Err(r.wait(t.Context())), stream.ErrClosed)
}

// If no piece of a restore has come for a minute, the leader gives the restore up. A minute later it does so
// again, because its first request may be lost.
func TestRestoreIsGivenUpAfterItsSilence(t *testing.T) {
	w := newWorld()
	m := state.Member{ID: 1, Incarnation: "a"}
	w.apply(t, state.Request{Op: state.OpOpenStream, Body: jute.AppendLong(m.Append(nil), 1)})
	synctest.Test(t, func(t *testing.T) {
		var staged int64
		var watch Watch
		looks := func(after time.Duration, want bool) {
			t.Helper()
			time.Sleep(after)
			g, abandoned := watch.Look(w.o.View)
			expect.Equal(t, abandoned, want, "abandoned")
			if want {
				expect.Equal(t, g.ID, staged, "the restore that is given up")
			}
		}
		looks(time.Hour, false) // no restore is under way, so none is abandoned
		looks(time.Hour, false)
		g := state.Staging{ID: 5, Origin: 1, Birth: 1, Size: 10}
		staged = g.ID
		w.apply(t, g.Open())
		looks(time.Hour, false)
		looks(silence-1, false)
		w.apply(t, g.Piece(0, []byte("12345")))
		looks(time.Hour, false) // the restore has gone on, so its time begins again
		looks(silence-1, false)
		looks(1, true)
		looks(silence-1, false)
		looks(1, true)
		w.apply(t, g.GiveUp())
		g.ID, staged = 6, 6
		w.apply(t, g.Open())
		w.apply(t, g.Piece(0, []byte("12345")))
		looks(time.Hour, false) // another restore has begun, so the time begins again
		looks(silence, true)
		w.apply(t, g.GiveUp())
		looks(time.Hour, false)
	})
}
