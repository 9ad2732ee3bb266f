package disk

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
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
	if err := s.StoreLog(&raft.Log{Index: 1}); err == nil {
		t.Fatal("the error was swallowed")
	}
	if err := <-died; !strings.Contains(err.Error(), "no space left") {
		t.Errorf("reason is %v", err)
	}
	broken.fail <- nil
	if err := s.StoreLog(&raft.Log{Index: 1}); err == nil {
		t.Error("a store that failed once was used again")
	}
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
		if !strings.Contains(err.Error(), "hangs") {
			t.Errorf("reason is %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a hanging store went unnoticed")
	}
	broken.fail <- nil
}
