package ticket_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/zlockd/zlockd/cmd/zlock/internal/ticket"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// If several callers create the same file at the same time, they share one ticket. The file is always whole,
// and no other file is left.
func TestTicketFileIsMadeAtOnce(t *testing.T) {
	for range 100 {
		dir := t.TempDir()
		file := filepath.Join(dir, "t")
		var all sync.WaitGroup
		var secrets sync.Map
		for range 8 {
			all.Go(func() {
				secret, of, err := ticket.Read(file, "/l")
				expect.OK(t, err)
				expect.Equal(t, of, "/l", "the path")
				secrets.Store(secret, true)
			})
		}
		all.Wait()
		different := 0
		secrets.Range(func(any, any) bool { different++; return true })
		expect.Equal(t, different, 1, "secrets")
		expect.Equal(t, must.Get(os.Stat(file))(t).Mode().Perm(), os.FileMode(0o600), "the mode")
		expect.Equal(t, len(must.Get(os.ReadDir(dir))(t)), 1, "files")
	}
}

// If the time of a call is over while a request waits for its answer, the error has what the servers answered
// before.
func TestLastAnswerIsToldWhenTheTimeEnds(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var requests atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 1 {
			end()
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, "<html>")
	}))
	defer proxy.Close()
	k := must.Get(ticket.NewCaller(proxy.URL, "", "", ""))(t)
	_, err := k.Ask(ctx, http.MethodGet, "/v1/tickets", nil, nil)
	must.Fails(t, err)
	expect.Has(t, err.Error(), "is not a port for tickets")
}
