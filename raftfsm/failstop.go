package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// raft reports a failed write, steps down and carries on, with a wrong idea of
// its last entry; a failed fsync may even "succeed" when repeated, with the
// data gone; and a call that never returns leaves a leader that nobody
// deposes. So every call into a store is timed, and the first error, or a call
// that takes storeDeadline, ends the server. After the restart the disk is the
// truth.
const storeDeadline = 10 * time.Second // and a warning after a tenth of it

func newGuard(log *slog.Logger, fatal func(error)) *guard {
	return &guard{log: log, fatal: fatal, deadline: storeDeadline, syncs: new(Latency), calls: map[*storeCall]struct{}{}}
}

// guard watches over the calls into the stores.
type guard struct {
	log      *slog.Logger
	fatal    func(error)
	deadline time.Duration              // of one call
	broken   atomic.Pointer[storeError] // the first error; every later call fails with it
	syncs    *Latency                   // of durable appends

	mu    sync.Mutex
	calls map[*storeCall]struct{} // under way
}

type storeError struct{ err error }

// storeCall is one call into a store.
type storeCall struct {
	what  string
	ticks int // of watch that it has seen
}

// run makes one call, timed.
func (g *guard) run(what string, call func() error) error {
	if b := g.broken.Load(); b != nil {
		return b.err
	}
	c := &storeCall{what: what}
	g.mu.Lock()
	g.calls[c] = struct{}{}
	g.mu.Unlock()
	err := call()
	g.mu.Lock()
	delete(g.calls, c)
	g.mu.Unlock()
	if err == nil || errors.Is(err, raft.ErrLogNotFound) || err.Error() == keyNotFound {
		return err
	}
	return g.die(fmt.Errorf("storage failed: %s: %w", what, err))
}

// watch warns of calls that are slow and ends the server over one that hangs,
// until ctx ends. It counts ticks instead of asking the clock: when the whole
// process was stopped for a while, that is one tick, not a hanging disk.
func (g *guard) watch(ctx context.Context) {
	const ticks = 10
	tick := time.NewTicker(g.deadline / ticks)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		hung := ""
		g.mu.Lock()
		for c := range g.calls {
			switch c.ticks++; {
			case c.ticks == 2:
				g.log.Warn("storage is slow", "op", c.what, "after", g.deadline/ticks)
			case c.ticks > ticks:
				hung = c.what
			}
		}
		g.mu.Unlock()
		if hung != "" {
			g.die(fmt.Errorf("storage hangs: %s not done after %v", hung, g.deadline))
			return
		}
	}
}

// keyNotFound is the text by which raft recognises a missing key; it knows no
// error value for it.
const keyNotFound = "not found"

func (g *guard) die(err error) error {
	if g.broken.CompareAndSwap(nil, &storeError{err}) {
		g.fatal(err)
	}
	return g.broken.Load().err
}

// guardedLog is a raft.LogStore under guard.
type guardedLog struct {
	raft.LogStore
	g *guard
}

// IsMonotonic passes on what the wrapped store needs raft to know.
func (s guardedLog) IsMonotonic() bool {
	m, ok := s.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (s guardedLog) FirstIndex() (i uint64, err error) {
	err = s.g.run("FirstIndex", func() (err error) { i, err = s.LogStore.FirstIndex(); return })
	return
}

func (s guardedLog) LastIndex() (i uint64, err error) {
	err = s.g.run("LastIndex", func() (err error) { i, err = s.LogStore.LastIndex(); return })
	return
}

// GetLog verifies what it reads: an entry damaged on disk must not be applied
// here or sent to others.
func (s guardedLog) GetLog(index uint64, l *raft.Log) error {
	return s.g.run("GetLog", func() error {
		if err := s.LogStore.GetLog(index, l); err != nil {
			return err
		}
		if l.Index != index {
			return fmt.Errorf("log holds entry %d in the place of %d", l.Index, index)
		}
		if l.Type == raft.LogCommand {
			return checkEntry(l.Data)
		}
		return nil
	})
}

func (s guardedLog) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s guardedLog) StoreLogs(logs []*raft.Log) error {
	start := time.Now()
	err := s.g.run("StoreLogs", func() error { return s.LogStore.StoreLogs(logs) })
	s.g.syncs.Add(time.Since(start))
	return err
}

func (s guardedLog) DeleteRange(from, to uint64) error {
	return s.g.run("DeleteRange", func() error { return s.LogStore.DeleteRange(from, to) })
}

// guardedStable is a raft.StableStore under guard.
type guardedStable struct {
	s raft.StableStore
	g *guard
}

// Set and SetUint64 do not return after an error. raft panics when it cannot
// save its term, which would end a program that embeds this server with a
// stack trace instead of a reason; Fatal has been told by then.
func (s guardedStable) Set(k, v []byte) error {
	return park(s.g.run("Set", func() error { return s.s.Set(k, v) }))
}

func park(err error) error {
	if err != nil {
		select {}
	}
	return nil
}

func (s guardedStable) Get(k []byte) (v []byte, err error) {
	err = s.g.run("Get", func() (err error) { v, err = s.s.Get(k); return })
	return
}

func (s guardedStable) SetUint64(k []byte, v uint64) error {
	return park(s.g.run("SetUint64", func() error { return s.s.SetUint64(k, v) }))
}

func (s guardedStable) GetUint64(k []byte) (v uint64, err error) {
	err = s.g.run("GetUint64", func() (err error) { v, err = s.s.GetUint64(k); return })
	return
}

// guardedSnapshots is a raft.SnapshotStore under guard. Writing a snapshot may
// take long and reading one streams, so only the ends of a write are timed;
// an error in between ends the server all the same.
type guardedSnapshots struct {
	s raft.SnapshotStore
	g *guard
}

func (s guardedSnapshots) List() (list []*raft.SnapshotMeta, err error) {
	err = s.g.run("list snapshots", func() (err error) { list, err = s.s.List(); return })
	return
}

func (s guardedSnapshots) Open(id string) (meta *raft.SnapshotMeta, r io.ReadCloser, err error) {
	err = s.g.run("open snapshot", func() (err error) { meta, r, err = s.s.Open(id); return })
	return
}

func (s guardedSnapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, t raft.Transport) (sink raft.SnapshotSink, err error) {
	err = s.g.run("create snapshot", func() (err error) { sink, err = s.s.Create(v, index, term, c, ci, t); return })
	if _, ok := sink.(forgetSink); ok || err != nil {
		return sink, err
	}
	return guardedSink{sink, s.g}, nil
}

type guardedSink struct {
	raft.SnapshotSink
	g *guard
}

func (s guardedSink) Write(b []byte) (n int, err error) {
	err = s.g.run("write snapshot", func() (err error) { n, err = s.SnapshotSink.Write(b); return })
	return
}

// Close is not timed as a whole: syncing a gigabyte may take its time.
func (s guardedSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return s.g.die(fmt.Errorf("storage failed: finish snapshot: %w", err))
	}
	return nil
}
