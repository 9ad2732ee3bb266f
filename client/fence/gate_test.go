package fence

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// stores() runs a test on each kind of store.
func stores(t *testing.T, f func(t *testing.T, s Store)) {
	t.Run("memory", func(t *testing.T) { f(t, new(MemoryStore)) })
	t.Run("file", func(t *testing.T) {
		s := must.Get(NewFileStore(t.TempDir()))(t)
		f(t, s)
	})
}

func TestGateAdmitsByTheHighestExclusiveToken(t *testing.T) {
	stores(t, func(t *testing.T, s Store) {
		g := NewGate(s)
		for i, step := range []struct {
			m    Mode
			t    Token
			want error
		}{
			{Shared, 3, nil},
			{Exclusive, 5, nil},
			{Exclusive, 5, nil}, // the same hold again
			{Shared, 5, nil},
			{Shared, 4, ErrStale},
			{Exclusive, 4, ErrStale},
			{Shared, 9, nil}, // a shared token does not raise the gate
			{Shared, 8, nil}, // so another reader is admitted
			{Exclusive, 6, nil},
			{Shared, 8, nil},
			{Exclusive, 10, nil},
			{Shared, 9, ErrStale},
			{Exclusive, 0, ErrInvalid},
			{Shared, -1, ErrInvalid},
			{Permit, 11, ErrInvalid},
			{0, 11, ErrInvalid},
		} {
			err := g.Admit("/r", step.m, step.t)
			expect.Is(t, err, step.want, "step %d: Admit(%v, %v) = %v", i, step.m, step.t, err)
		}
		expect.OK(t, g.Admit("/other", Exclusive, 1), "resources are not apart")
	})
}

func TestZeroGateIsReady(t *testing.T) {
	var g Gate
	must.OK(t, g.Admit("/r", Exclusive, 2))
	wantErr(t, g.Admit("/r", Exclusive, 1), ErrStale)
}

// The highest token never falls, in whatever order tokens come.
func TestRaiseIsAtomic(t *testing.T) {
	stores(t, func(t *testing.T, s Store) {
		const workers, each = 8, 20
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range each {
					tok := Token(1 + (i*workers+w*7)%(workers*each))
					ok, err := s.Raise(t.Context(), "/r", tok)
					expect.OK(t, err)
					high, err := s.Load(t.Context(), "/r")
					expect.That(t, err == nil && high >= tok,
						"after Raise(%d) = %v the highest is %d, %v", tok, ok, high, err)
				}
			})
		}
		wg.Wait()
		if high, err := s.Load(t.Context(), "/r"); err != nil || high != workers*each {
			t.Fatalf("highest is %d, %v", high, err)
		}
	})
}

type brokenStore struct{ MemoryStore }

var errBroken = errors.New("broken")

func (*brokenStore) Load(context.Context, string) (Token, error)        { return 0, errBroken }
func (*brokenStore) Raise(context.Context, string, Token) (bool, error) { return true, errBroken }

func TestGateRefusesWhenTheStoreFails(t *testing.T) {
	g := NewGate(new(brokenStore))
	for _, m := range []Mode{Exclusive, Shared} {
		expect.Is(t, g.Admit("/r", m, 1), errBroken, "%v", m)
	}
}

func TestDoCancelsAndOutwaitsEarlierHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		var order []string
		started := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			err := g.Do(t.Context(), "/r", Exclusive, 1, func(ctx context.Context) error {
				close(started)
				<-ctx.Done() // a later hold has come
				time.Sleep(time.Second)
				order = append(order, "first done")
				return nil
			})
			expect.OK(t, err)
		})
		<-started
		err := g.Do(t.Context(), "/r", Exclusive, 2, func(context.Context) error {
			order = append(order, "second")
			return nil
		})
		wg.Wait()
		must.OK(t, err)
		must.Equal(t, len(order), 2, "len(order)")
		must.Equal(t, order[0], "first done", "order[0]")
		must.Is(t, g.Do(t.Context(), "/r", Exclusive, 1, nil), ErrStale, "the first holder came back")
		must.Equal(t, len(g.busy), 0, "idle resources are kept")
	})
}

func TestDoShutsEarlierHoldsOutEvenIfTheLaterOneGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			g.Do(t.Context(), "/r", Exclusive, 1, func(context.Context) error { <-release; return nil })
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, g.Do(ctx, "/r", Exclusive, 2, nil), context.DeadlineExceeded)
		wantErr(t, g.Do(t.Context(), "/r", Exclusive, 1, nil), ErrStale)
		close(release)
		wg.Wait()
	})
}

func TestDoRunsOneHoldAndReadersSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		together := func(m Mode, tokens ...Token) {
			var wg sync.WaitGroup
			var in atomic.Int32
			for _, tok := range tokens {
				wg.Go(func() {
					err := g.Do(t.Context(), "/r", m, tok, func(context.Context) error {
						in.Add(1)
						synctest.Wait()
						return nil
					})
					expect.OK(t, err)
				})
			}
			wg.Wait()
			expect.Equal(t, int(in.Load()), len(tokens), "%v: %d ran", m, in.Load())
		}
		together(Shared, 3)
		gate := make(chan struct{})
		var both sync.WaitGroup
		for _, tok := range []Token{3, 9} {
			both.Go(func() {
				g.Do(t.Context(), "/r", Shared, tok, func(context.Context) error { <-gate; return nil })
			})
		}
		synctest.Wait()
		expect.Equal(t, g.busy["/r"].users, 2, "users")
		expect.Equal(t, len(g.busy["/r"].runs), 2, "readers run side by side")
		close(gate)
		both.Wait()
	})
}

// A write of an earlier hold never follows a write of a later one, when many holders come in random order.
// The package exists for this property.
func TestWritesThroughDoNeverGoBack(t *testing.T) {
	var g Gate
	var last Token
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 200 {
				tok := Token(1 + i + w%3)
				_ = g.Do(context.Background(), "/r", Exclusive, tok, func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					expect.That(t, tok >= last, "write of %d after %d", tok, last)
					last = tok
					return nil
				})
			}
		})
	}
	wg.Wait()
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	must.Is(t, err, want)
}

func TestMiddlewareAnswersByTheSequencer(t *testing.T) {
	seq := func(path string, m Mode, tok Token) string {
		return Sequencer{path, "n", m, tok}.String()
	}
	var got Sequencer
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ = FromContext(r.Context())
		w.WriteHeader(http.StatusNoContent)
	})
	h := Middleware(new(Gate), next)
	for i, step := range []struct {
		header []string
		want   int
	}{
		{nil, 428},
		{[]string{""}, 400},
		{[]string{"zl1.x.y"}, 400},
		{[]string{seq("/a", Exclusive, 5)}, 204},
		{[]string{seq("/a", Exclusive, 4)}, 412},
		{[]string{seq("/a", Shared, 4)}, 412},
		{[]string{seq("/a", Shared, 6)}, 204},
		{[]string{seq("/a", Permit, 9)}, 400},
		{[]string{seq("/b", Exclusive, 1)}, 204},
		{[]string{seq("/b", Exclusive, 1), seq("/b", Exclusive, 1)}, 400},
	} {
		r := httptest.NewRequest("PUT", "/thing", nil)
		r.Header[Header] = step.header
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		expect.Equal(t, w.Code, step.want, "step %d: %d %s", i, w.Code, w.Body)
		expect.That(t, w.Code != 204 || got.String() == step.header[0],
			"step %d: the handler sees %v", i, got)
	}
}

type checkerFunc func(context.Context, Sequencer) error

func (f checkerFunc) CheckSequencer(ctx context.Context, s Sequencer) error { return f(ctx, s) }

func TestHandlerComparesTheLockAndAsksTheChecker(t *testing.T) {
	var answer error
	h := &Handler{
		Gate:    new(Gate),
		Next:    http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		Lock:    func(r *http.Request) string { return "/locks" + r.URL.Path },
		Checker: checkerFunc(func(context.Context, Sequencer) error { return answer }),
	}
	for _, tc := range []struct {
		path   string
		answer error
		want   int
	}{
		{"/locks/a", nil, 200},
		{"/locks/b", nil, 403},
		{"/locks/a", ErrStale, 412},
		{"/locks/a", errors.New("no server"), 503},
	} {
		answer = tc.answer
		r := httptest.NewRequest("PUT", "/a", nil)
		r.Header.Set(Header, Sequencer{tc.path, "n", Exclusive, 1}.String())
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		expect.Equal(t, w.Code, tc.want, "%s, %v", tc.path, tc.answer)
	}
}

// Only a token that the checker confirms raises the gate. A forged token keeps no holder out, whatever the
// checker answers and whatever the store is.
func TestOnlyConfirmedTokensRaiseTheGate(t *testing.T) {
	stores(t, func(t *testing.T, store Store) {
		for name, answer := range map[string]error{
			"refused": ErrStale, "no server": errors.New("no server"), "invalid": ErrInvalid,
		} {
			t.Run(name, func(t *testing.T) {
				h := &Handler{
					Gate: NewGate(store),
					Next: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
					Checker: checkerFunc(func(_ context.Context, s Sequencer) error {
						if s.Token != 1 {
							return answer
						}
						return nil
					}),
				}
				put := func(m Mode, token Token) int {
					r := httptest.NewRequest("PUT", "/a", nil)
					r.Header.Set(Header, Sequencer{"/a", "n", m, token}.String())
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					return w.Code
				}
				for _, m := range []Mode{Exclusive, Shared} {
					expect.That(t, put(m, 1<<62) != 200, "the forged %v token got in", m)
					expect.Equal(t, put(Exclusive, 1), 200, "the holder, after a forged %v token", m)
				}
				highest, err := store.Load(t.Context(), "/a")
				expect.OK(t, err)
				expect.Equal(t, highest, Token(1), "the highest token")
			})
		}
	})
}

// The checker is asked again after a wait, so a hold that has ended while its request waited is refused.
func TestCheckerIsAskedAgainAfterAWait(t *testing.T) {
	var ended atomic.Bool
	begun, end := make(chan struct{}), make(chan struct{})
	h := &Handler{
		Gate: new(Gate),
		Next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if s, _ := FromContext(r.Context()); s.Token == 1 {
				close(begun)
				<-r.Context().Done() // the later hold ends this context
				ended.Store(true)
				<-end
			}
		}),
		Checker: checkerFunc(func(_ context.Context, s Sequencer) error {
			if s.Token == 2 && ended.Load() {
				return ErrStale
			}
			return nil
		}),
	}
	put := func(token Token) int {
		r := httptest.NewRequest("PUT", "/a", nil)
		r.Header.Set(Header, Sequencer{"/a", "n", Exclusive, token}.String())
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	go put(1)
	<-begun
	code := make(chan int)
	go func() { code <- put(2) }()
	must.Await(t, "the later request to wait", 30*time.Second, ended.Load)
	close(end)
	expect.Equal(t, <-code, http.StatusPreconditionFailed)
}

// If the next handler panics, Handler writes no answer of its own and lets the panic through.
func TestHandlerLetsPanicsThrough(t *testing.T) {
	var g Gate
	h := Middleware(&g, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	r := httptest.NewRequest("PUT", "/a", nil)
	r.Header.Set(Header, Sequencer{"/a", "n", Exclusive, 1}.String())
	func() {
		defer func() {
			if recover() != http.ErrAbortHandler {
				t.Error("the panic was swallowed")
			}
		}()
		h.ServeHTTP(httptest.NewRecorder(), r)
	}()
	expect.Equal(t, len(g.busy), 0, "the resource is still busy")
}

// row is a row of the table in the SQL form of the package documentation.
type row struct {
	mu      sync.Mutex
	balance int
	fence   Token
}

// update() does what this statement does, under any isolation level that makes one statement atomic,
//
//	UPDATE account SET balance = :b, fence = :t WHERE id = :id AND fence <= :t
//
// and returns the number of rows updated.
func (r *row) update(b int, t Token) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fence > t {
		return 0
	}
	r.balance, r.fence = b, t
	return 1
}

func TestSQLFormRefusesFormerHolders(t *testing.T) {
	var r row
	for i, step := range []struct {
		b    int
		t    Token
		rows int
	}{
		{100, 5, 1}, // the first holder
		{110, 5, 1}, // the first holder again
		{200, 8, 1}, // the second holder
		{120, 5, 0}, // the first holder after a long pause
		{210, 8, 1},
	} {
		n := r.update(step.b, step.t)
		expect.Equal(t, n, step.rows, "step %d: %d rows", i, n)
	}
	expect.That(t, r.balance == 210 && r.fence == 8, "the row holds %d under %d", r.balance, r.fence)
}

// The SQL statement and a Gate admit the same tokens. The statement decides and writes in one step.
func TestSQLFormAgreesWithTheGate(t *testing.T) {
	var r row
	var g Gate
	for _, tok := range []Token{3, 3, 1, 7, 6, 7, 2, 9, 8} {
		admitted := g.Admit("/r", Exclusive, tok) == nil
		updated := r.update(0, tok) == 1
		expect.Equal(t, updated, admitted, "token %d: statement %v, gate", tok, updated)
	}
}

// A hold ends the calls of older holds, unless both holds are readers. Other calls of the hold go on.
func TestCallsOfOlderHoldsEnd(t *testing.T) {
	for _, c := range []struct {
		running, next Mode
		token         Token
		ends          bool
	}{
		{Exclusive, Exclusive, 6, true}, {Exclusive, Shared, 6, true}, {Shared, Exclusive, 6, true},
		{Shared, Shared, 6, false}, {Exclusive, Exclusive, 5, false}, {Shared, Exclusive, 5, false},
		{Exclusive, Exclusive, 4, false},
	} {
		r := &run{mode: c.running, token: 5}
		b := &busy{runs: map[*run]struct{}{r: {}}}
		expect.Equal(t, b.olderThan(c.next, c.token) == r, c.ends, "%+v", c)
	}
}

// If a later hold comes while a hold waits for the end of an earlier one, the waiting hold is refused.
func TestLaterHoldShutsOutThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		release := make(chan struct{})
		var wg sync.WaitGroup
		do := func(token Token, f func(context.Context) error) (result *error) {
			result = new(error)
			wg.Go(func() { *result = g.Do(t.Context(), "/r", Exclusive, token, f) })
			synctest.Wait()
			return result
		}
		first := do(1, func(context.Context) error { <-release; return nil })
		second := do(2, func(context.Context) error { t.Error("the second hold runs"); return nil })
		third := do(3, func(context.Context) error { return nil })
		close(release)
		wg.Wait()
		expect.OK(t, errors.Join(*first, *third))
		expect.Is(t, *second, ErrStale)
	})
}

// The context of a call ends with the call. A call whose caller's context has ended does not run.
func TestContextsOfCalls(t *testing.T) {
	var g Gate
	var inner context.Context
	must.OK(t, g.Do(t.Context(), "/r", Exclusive, 1, func(ctx context.Context) error {
		inner = ctx
		return ctx.Err()
	}))
	expect.Is(t, inner.Err(), context.Canceled)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	expect.Is(t, g.Do(ended, "/r", Exclusive, 1, nil), context.Canceled)
}
