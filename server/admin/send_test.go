package admin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// unread is the writer of an answer that its client does not read until free is closed.
type unread struct {
	*httptest.ResponseRecorder
	free  chan struct{}
	began func()
}

func (u *unread) Write(b []byte) (int, error) {
	u.began()
	<-u.free
	return len(b), nil
}

// Clients that do not read keep no answer from others: an answer gives its place away before it is written.
func TestSlowReadersHoldNoPlace(t *testing.T) {
	for _, path := range []string{"/metrics", "/commands/watches"} {
		t.Run(path, func(t *testing.T) {
			h := newAdmin(t, &fake{status: standalone()}, "").Handler()
			free := make(chan struct{})
			var reading, done sync.WaitGroup
			for range Places {
				reading.Add(1)
				w := &unread{httptest.NewRecorder(), free, sync.OnceFunc(reading.Done)}
				done.Go(func() { h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil)) })
			}
			reading.Wait()
			expect.Equal(t, get(t, h, path).Code, http.StatusOK, "for a fifth client")
			close(free)
			done.Wait()
		})
	}
}

// What is on its way takes a bounded memory, in all and for one address; others have theirs.
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
