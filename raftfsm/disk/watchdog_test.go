package disk

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var quiet = slog.New(slog.DiscardHandler)

// brokenLog is a log store whose writes fail or hang on demand.
type brokenLog struct {
	raft.LogStore
	fail chan error // StoreLogs takes its fate from here; nil channel: works
}

func (b *brokenLog) StoreLogs(l []*raft.Log) error {
	if b.fail != nil {
		if err := <-b.fail; err != nil {
			return err
		}
	}
	return b.LogStore.StoreLogs(l)
}

func TestR9FirstStorageErrorEndsTheServer(t *testing.T) {
	died := make(chan error, 1)
	g := newWatchdog(quiet, func(err error) { died <- err })
	broken := &brokenLog{raft.NewInmemStore(), make(chan error, 2)}
	s := watchedLog{broken, &Disk{dog: g}}
	broken.fail <- errors.New("no space left on device")
	must.Fails(t, s.StoreLog(&raft.Log{Index: 1}), "the error was swallowed")
	if err := <-died; !strings.Contains(err.Error(), "no space left") {
		t.Errorf("reason is %v", err)
	}
	broken.fail <- nil
	expect.Fails(t, s.StoreLog(&raft.Log{Index: 1}), "a store that failed once was used again")
}

func TestR2HangingStorageEndsTheServer(t *testing.T) {
	died := make(chan error, 1)
	g := newWatchdog(quiet, func(err error) { died <- err })
	g.deadline = 50 * time.Millisecond
	go g.watch(t.Context())
	broken := &brokenLog{raft.NewInmemStore(), make(chan error)}
	go watchedLog{broken, &Disk{dog: g}}.StoreLog(&raft.Log{Index: 1})
	select {
	case err := <-died:
		expect.Has(t, err.Error(), "hangs", "reason is %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("a hanging store went unnoticed")
	}
	broken.fail <- nil
}
