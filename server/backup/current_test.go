package backup_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/server/backup"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func (unable) Current(context.Context) error  { return nil }
func (failing) Current(context.Context) error { return nil }

// alone is a server whose state does not count as current until the test sets `current`.
type alone struct {
	backup.Source
	current atomic.Bool
}

var errAlone = errors.New("this server is not current: it was removed")

func (a *alone) Current(ctx context.Context) error {
	if !a.current.Load() {
		return errAlone
	}
	return a.Source.Current(ctx)
}

// A state that is not current is not sent to a client. Otherwise the client would have an old state in a
// backup that looks new.
func TestOnlyCurrentStateIsGivenOut(t *testing.T) {
	i := serve(t, 1)
	source := &alone{Source: i.Node()}
	h := handler(i)
	h.Source = func() backup.Source { return source }
	for _, format := range []string{"zlockd", "zookeeper"} {
		w := ask(h, "GET", "?format="+format, "digest super:secret")
		expect.Equal(t, w.Code, http.StatusServiceUnavailable)
		expect.Has(t, w.Body.String(), errAlone.Error())
	}
	source.current.Store(true)
	expect.Equal(t, ask(h, "GET", "?format=zlockd", "digest super:secret").Code, http.StatusOK)
}

// A server that was removed, or has no leader, writes no backup and removes none. It logs the reason once per
// interval, and takes the backup as soon as its state is current.
func TestOnlyCurrentStateIsBackedUp(t *testing.T) {
	source := &alone{Source: serve(t, 1).Node()}
	clock := newClock()
	k := taker(nil, clock, t.TempDir(), 1, 0, 1)
	k.Source = func() backup.Source { return source }
	k.Keep = 1
	good := filepath.Join(k.Dir, "zlockd-1-20251231T000000Z-0000000000000001-ours.backup")
	must.OK(t, os.WriteFile(good, nil, 0o600))
	must.OK(t, os.Chtimes(good, clock.now().Add(-24*time.Hour), clock.now().Add(-24*time.Hour)))
	stop := begin(t, k)
	for range 5 {
		clock.tick <- clock.now()
	}
	expect.List(t, backups(t, k.Dir), []string{good})
	expect.Equal(t, k.State().Failed, 1, "failures")
	expect.Equal(t, k.State().Err, errAlone.Error())
	source.current.Store(true)
	clock.tick <- clock.now()
	clock.tick <- clock.now()
	stop()
	expect.Equal(t, k.State().Taken, 1, "taken")
	expect.Equal(t, k.State().Err, "")
}
