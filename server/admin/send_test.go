package admin

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/test/expect"
)

// unread is the writer of an answer that its client does not read until the channel `free` is closed.
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

// A client that does not read does not delay others: an answer gives its place in the pool back before it is
// written.
func TestSlowReadersHoldNoPlace(t *testing.T) {
	for _, path := range []string{"/metrics", "/commands/watches"} {
		t.Run(path, func(t *testing.T) {
			h := newAdmin(t, &fake{status: standalone()}, "").Handler()
			free := make(chan struct{})
			var reading, done sync.WaitGroup
			for range port.Places {
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
