package fence

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

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

// A handler that writes an answer and panics must not be answered for again.
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
