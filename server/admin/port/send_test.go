package port

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
)

// Answers being sent take a limited amount of memory, in total and per address.
func TestOutgoingIsBounded(t *testing.T) {
	const step = 1 << 20
	var o Outgoing
	n := 0
	for o.take("a", step) {
		n += step
	}
	expect.Equal(t, n, maxOutgoingAddr, "bytes for one address")
	for i := 0; o.take(fmt.Sprint(i), maxOutgoingAddr); i++ {
		n += maxOutgoingAddr
	}
	expect.Equal(t, n, maxOutgoing, "bytes in all")
	expect.Is(t, o.Send("1.2.3.4:5", 1, func() error { return nil }), error(ErrBusy))
	o.give("a", maxOutgoingAddr)
	expect.OK(t, o.Send("1.2.3.4:5", maxOutgoingAddr, func() error { return nil }))
	expect.Equal(t, o.all, maxOutgoing-maxOutgoingAddr, "after an answer")
}

// When the last answer to an address ends, the count of the address is removed.
func TestAnswersOfAnAddressAreForgotten(t *testing.T) {
	var o Outgoing
	expect.That(t, o.take("a", 2) && o.take("a", 3), "no room")
	o.give("a", 2)
	expect.Equal(t, o.by["a"], 3, "bytes under way")
	o.give("a", 3)
	expect.Equal(t, len(o.by), 0, "addresses")
}

// told is a ResponseWriter whose Write fails. It keeps the status codes of the answer.
type told struct {
	*httptest.ResponseRecorder
	codes []int
}

func (w *told) WriteHeader(code int) { w.codes = append(w.codes, code) }

func (w *told) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// An answer is built while it has a place in the pool. It is sent after it has given back the place.
func TestAnswersAreSentOutsideOfThePlace(t *testing.T) {
	var o Outgoing
	p := NewPool()
	build := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		expect.Equal(t, p.Taken(), 1, "places taken")
		w.Header().Set("X", "y")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "text")
	})
	h := o.InPlace(p, time.Now, build)
	r := httptest.NewRequest("GET", "/", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	expect.Equal(t, fmt.Sprint(w.Code, w.Header().Get("X"), w.Body), "418ytext")
	expect.Equal(t, p.Taken(), 0, "places taken afterwards")

	unread := &told{ResponseRecorder: httptest.NewRecorder()}
	h.ServeHTTP(unread, r)
	expect.List(t, unread.codes, []int{http.StatusTeapot}, "the codes of one answer")
	expect.OK(t, o.Send("10.0.0.1:1", maxOutgoing, func() error {
		w = httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return nil
	}))
	expect.Equal(t, w.Code, http.StatusServiceUnavailable, "where too much is under way")
	for range Places {
		_, ok := p.Acquire()
		expect.That(t, ok, "no place")
	}
	p.Wait, w = 0, httptest.NewRecorder()
	o.InPlace(p, time.Now, build).ServeHTTP(w, r)
	expect.Equal(t, w.Code, http.StatusServiceUnavailable, "without a place")
}

// timed is a ResponseWriter that records its write deadline.
type timed struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (w *timed) SetWriteDeadline(t time.Time) error { w.until = t; return nil }

func TestAnswersWithoutALimit(t *testing.T) {
	w := &timed{httptest.NewRecorder(), time.Now()}
	Unlimited(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "profile") })(w, nil)
	expect.Equal(t, w.Body.String(), "profile")
	expect.That(t, w.until.IsZero(), "a profile must be over at %v", w.until)
}
