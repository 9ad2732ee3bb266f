package raftfsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/zlockd/zlockd/raftfsm/seglog"
)

// logCacheEntries is how many log entries stay in memory for followers; an
// entry can be a quarter of a megabyte.
const logCacheEntries = 64

// Stores are what raft keeps between two lives of a server.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	Identity  *identity // for servers without a data directory
	closers   []io.Closer
}

// NewMemoryStores returns stores that live as long as the process. A server in
// memory that may have to send snapshots to others keeps them.
func NewMemoryStores(alone bool) *Stores {
	mem := raft.NewInmemStore()
	s := &Stores{Log: mem, Stable: mem, Identity: new(identity), Snapshots: forgetSnapshots{}}
	if !alone {
		s.Snapshots = raft.NewInmemSnapshotStore()
	}
	return s
}

// openStores opens the stores of a data directory.
func openStores(d *dataDir, kind string, retain int) (_ *Stores, err error) {
	s := new(Stores)
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	dir := d.sub("raft")
	for _, p := range []string{dir, dir + "/log"} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			return s, err
		}
	}
	// Terms and votes are rare writes, so they may cost two fsyncs each.
	bolt, err := boltdb.New(boltdb.Options{Path: dir + "/stable.db", BoltOptions: &bbolt.Options{Timeout: time.Second}, MsgpackUseNewTimeFormat: true})
	if err != nil {
		return s, fmt.Errorf("open stable store: %w", err)
	}
	s.Stable = bolt
	s.closers = append(s.closers, bolt)
	if err := checkLogKind(bolt, kind); err != nil {
		return s, err
	}
	if kind == "bolt" {
		s.Log = bolt
	} else {
		l, err := seglog.Open(dir + "/log")
		if err != nil {
			return s, fmt.Errorf("open log: %w", err)
		}
		s.Log = l
		s.closers = append(s.closers, l)
	}
	s.Snapshots, err = openSnapshotStore(d.sub("snapshots"), retain)
	return s, err
}

// checkLogKind remembers which log store a directory uses: opening the other
// one would look like an empty log.
func checkLogKind(stable raft.StableStore, kind string) error {
	key := []byte("zlockd log store")
	was, err := stable.Get(key)
	if err != nil && err.Error() != keyNotFound {
		return err
	}
	if len(was) == 0 {
		return stable.Set(key, []byte(kind))
	}
	if string(was) != kind {
		return fmt.Errorf("the data directory was made with --log-store %s; give that, or start with an empty directory", was)
	}
	return nil
}

// close closes what openStores opened.
func (s *Stores) close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// hcLogger lets the raft libraries log through ours. Their info is our debug:
// what an operator should know of leadership and membership we say ourselves.
func hcLogger(log *slog.Logger) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "raft", Level: hclog.Info, Output: lineLogger{log}, DisableTime: true})
}

type lineLogger struct{ log *slog.Logger }

func (l lineLogger) Write(b []byte) (int, error) {
	line := string(bytes.TrimSpace(b))
	switch {
	case bytes.HasPrefix(b, []byte("[ERROR]")), bytes.HasPrefix(b, []byte("[WARN]")):
		l.log.Warn(line)
	default:
		l.log.Debug(line)
	}
	return len(b), nil
}
