package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"runtime/trace"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
)

// watchedLog is a raft.LogStore whose calls the watchdog watches.
type watchedLog struct {
	raft.LogStore
	d *Disk
}

// IsMonotonic makes raft empty any kind of log when another server's snapshot replaces it, because entries of
// the log may conflict with the snapshot.
func (s watchedLog) IsMonotonic() bool { return true }

func (s watchedLog) FirstIndex() (uint64, error) {
	return timed(s.d.dog, "FirstIndex", s.LogStore.FirstIndex)
}

func (s watchedLog) LastIndex() (uint64, error) {
	return timed(s.d.dog, "LastIndex", s.LogStore.LastIndex)
}

// GetLog does not return after an error of the disk once raft runs, but ends its goroutine: raft panics when
// it cannot read an entry that it must apply. See watchedStable.Set.
func (s watchedLog) GetLog(index uint64, l *raft.Log) error {
	err := s.d.dog.run("GetLog", func() error {
		err := getLog(s.LogStore, index, l)
		if errors.Is(err, raft.ErrLogNotFound) && !s.d.leading() && s.d.covered.get(index, l) {
			return nil
		}
		if err == nil {
			s.d.configs.addLogs(l)
		}
		return err
	})
	if err != nil && !errors.Is(err, raft.ErrLogNotFound) && s.d.applied.Load() != nil {
		runtime.Goexit()
	}
	return err
}

// getLog verifies the entry that it reads, because a server must not apply a damaged entry or send it to
// others.
func getLog(from raft.LogStore, index uint64, l *raft.Log) (err error) {
	if err = from.GetLog(index, l); err != nil {
		return err
	}
	if l.Index != index {
		return fmt.Errorf("the log holds entry %d in place of entry %d", l.Index, index)
	}
	switch l.Type {
	case raft.LogCommand:
		return entries.Check(l.Data)
	case raft.LogConfiguration:
		defer func() {
			if p := recover(); p != nil { // raft panics if an entry is damaged
				err = fmt.Errorf("log entry %d, which names the members, is damaged: %v", index, p)
			}
		}()
		raft.DecodeConfiguration(l.Data)
	}
	return nil
}

func (s watchedLog) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs makes entries durable or, if Disk.mayRunAhead allows it, only readable.
func (s watchedLog) StoreLogs(logs []*raft.Log) error {
	s.d.configs.addLogs(logs...)
	s.d.covered.stored()
	if s.d.mayRunAhead(logs) {
		if b := s.d.dog.broken.Load(); b != nil {
			return *b
		}
		// Append only queues: an error here does not come from the disk
		if err := s.d.seg.Append(logs, s.d.leads.Load().alone); err != nil {
			return s.d.dog.die(fmt.Errorf("storage failed: queue: %w", err))
		}
		noteStored(logs, false)
		return nil
	}
	err := s.d.dog.append("StoreLogs", func() error { return s.LogStore.StoreLogs(logs) })
	if err == nil {
		noteStored(logs, true)
	}
	return err
}

// noteStored adds the append to the running execution trace.
func noteStored(logs []*raft.Log, durable bool) {
	if trace.IsEnabled() && len(logs) > 0 {
		trace.Logf(context.Background(), "log", "entry %d is in the log; on the disk: %v",
			logs[len(logs)-1].Index, durable)
	}
}

func (s watchedLog) DeleteRange(from, to uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	if from > last {
		return nil // a snapshot has replaced the entries of this range
	}
	if to >= last {
		s.d.configs.cut(from) // raft removes the newest entries, so their configurations go, too
	}
	if from <= first && to >= last {
		s.d.configs.add(s.d.covered.emptied(last))
	}
	return s.d.dog.run("DeleteRange", func() error { return s.LogStore.DeleteRange(from, to) })
}

// Writing returns the number of the oldest running write of a log entry, a term or a vote. It returns 0 if no
// such write runs.
func (d *Disk) Writing() (call uint64) {
	d.dog.mu.Lock()
	defer d.dog.mu.Unlock()
	for c := range d.dog.calls {
		switch c.what {
		case "append", "StoreLogs", "DeleteRange", "Set", "SetUint64":
			if call == 0 || c.nth < call {
				call = c.nth
			}
		}
	}
	return call
}

// watchedStable is a raft.StableStore whose calls the watchdog watches. It makes the whole log durable before
// it stores a term or a vote. A former leader answers, votes and stands for election only in a newer term,
// and raft stores that term first. So a former leader makes promises only about durable entries.
type watchedStable struct {
	s raft.StableStore
	d *Disk
}

// Set and SetUint64 do not return after an error. raft panics when it cannot save its term, and a program
// that embeds this server would end with a stack trace instead of a reason. At that time the watchdog has
// already called Fatal.
func (s watchedStable) Set(k, v []byte) error {
	return s.store("Set", func() error { return s.s.Set(k, v) })
}

// store() waits until the log is durable, and then writes.
func (s watchedStable) store(what string, write func() error) error {
	err := s.d.dog.run(what, func() error {
		if err := s.d.WaitDurable(math.MaxUint64); err != nil {
			return err
		}
		return write()
	})
	if err != nil {
		select {}
	}
	return nil
}

func (s watchedStable) Get(k []byte) ([]byte, error) {
	return timed(s.d.dog, "Get", func() ([]byte, error) { return s.s.Get(k) })
}

func (s watchedStable) SetUint64(k []byte, v uint64) error {
	return s.store("SetUint64", func() error { return s.s.SetUint64(k, v) })
}

func (s watchedStable) GetUint64(k []byte) (uint64, error) {
	return timed(s.d.dog, "GetUint64", func() (uint64, error) { return s.s.GetUint64(k) })
}

// watchedSnapshots is a raft.SnapshotStore whose calls the watchdog watches. Because it may take long to
// write or read a snapshot, the watchdog times only the start and the end of a write. An error in between
// also ends the server.
//
// A snapshot of another server is verified before it is published. Every snapshot is verified while raft
// reads it: a snapshot that one server's disk has damaged must be reported, and must not become the state of
// another server.
type watchedSnapshots struct {
	s       raft.SnapshotStore
	d       *Disk
	verify  func(io.Reader) error // verifies a snapshot of another server
	damaged func(error)           // called with the error of a damaged snapshot on this disk
}

func (s watchedSnapshots) List() ([]*raft.SnapshotMeta, error) {
	return timed(s.d.dog, "list snapshots", s.s.List)
}

func (s watchedSnapshots) Open(id string) (meta *raft.SnapshotMeta, r io.ReadCloser, err error) {
	err = s.d.dog.run("open snapshot", func() (err error) { meta, r, err = s.s.Open(id); return })
	if err != nil {
		return nil, nil, err
	}
	// raft starts with this snapshot
	s.d.snapshotIs(meta.Index, meta.Term, meta.ConfigurationIndex, meta.Configuration)
	return meta, &checkedReader{ReadCloser: r, check: startCheck(state.CheckSnapshot), damaged: s.damaged}, nil
}

// snapshotIs notes that a snapshot with these members is on the disk.
func (d *Disk) snapshotIs(index, term, membersIndex uint64, c raft.Configuration) {
	members := config{index: membersIndex, servers: c.Servers, gap: true}
	d.configs.add(members)
	d.covered.snapshot(index, term, members)
}

func (s watchedSnapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64,
	t raft.Transport) (sink raft.SnapshotSink, err error) {
	sink, err = timed(s.d.dog, "create snapshot", func() (raft.SnapshotSink, error) {
		return s.s.Create(v, index, term, c, ci, t)
	})
	if err != nil || Forgets(sink) {
		return sink, err
	}
	return &watchedSink{SnapshotSink: sink, d: s.d, index: index, check: startCheck(s.verify),
		published: func() { s.d.snapshotIs(index, term, ci, c) }}, nil
}

// watchedSink is a snapshot being written. raft uses it from one goroutine.
type watchedSink struct {
	raft.SnapshotSink
	d         *Disk
	index     uint64 // index of the last log entry in the snapshot
	check     *check // nil: the snapshot is this server's own
	published func()
}

// Own marks a snapshot as one of this server's own state, which need not be verified. Call it before the
// first Write.
func Own(sink raft.SnapshotSink) {
	if s, ok := sink.(*watchedSink); ok {
		_ = s.endCheck()
	}
}

// Done reports that raft has finished its work with a snapshot of this server's own state, or that the
// snapshot failed.
func Done(sink raft.SnapshotSink) {
	if s, ok := sink.(*watchedSink); ok {
		s.d.covered.ownDone()
	}
}

// endCheck ends the verification, and returns its result.
func (s *watchedSink) endCheck() error {
	c := s.check
	if c == nil {
		return nil
	}
	s.check = nil
	return c.end()
}

// Write refuses a snapshot of another server that would set this server back to an older state. raft installs
// any snapshot and empties the log, even if the snapshot is late. The leader may have given up on a late
// snapshot, and sent a newer snapshot and more entries, on which it relies. raft's main loop calls Write.
// Until Write returns, no other code installs a snapshot or applies an entry, so HasApplied cannot change its
// answer in that time. If the leader still waits, it sends the snapshot again, and Port.toRaft answers that
// this server has it.
func (s *watchedSink) Write(b []byte) (n int, err error) {
	if s.check != nil && s.d.HasApplied(s.index) {
		return 0, fmt.Errorf("the snapshot that another server sent is late: this server has already "+
			"applied entry %d", s.index)
	}
	err = s.d.dog.run("write snapshot", func() (err error) { n, err = s.SnapshotSink.Write(b); return })
	if s.check != nil {
		s.check.feed(b[:n])
	}
	return
}

// Cancel removes the snapshot.
func (s *watchedSink) Cancel() error {
	_ = s.endCheck() // the result of the verification is not needed
	return s.SnapshotSink.Cancel()
}

// Close is not timed as a whole: to sync a gigabyte may take long.
//
// raft believes that the snapshot finished last is the newest. It records this server's own snapshots and
// those of other servers on different goroutines. So Close refuses this server's own snapshot if another
// server has sent a newer one, because the log then begins after the newer one. Close refuses a snapshot of
// another server until raft has recorded this server's own snapshot.
func (s *watchedSink) Close() error {
	own := s.check == nil
	err := s.endCheck()
	if err == nil && !own {
		err = s.d.covered.beginSent(s.index)
	}
	if err != nil {
		err = fmt.Errorf("the snapshot that another server sent is refused: %w", err)
		s.d.dog.log.Error(err.Error())
		return errors.Join(err, s.SnapshotSink.Cancel())
	}
	if err := s.SnapshotSink.Close(); err != nil {
		return s.d.dog.die(fmt.Errorf("storage failed: finish snapshot: %w", err))
	}
	if own {
		if err := s.d.covered.beginOwn(s.index); err != nil {
			return err
		}
	}
	s.published()
	return nil
}

// Forgets reports whether sink discards its snapshot, so that the caller need not write it.
func Forgets(sink raft.SnapshotSink) bool {
	_, is := sink.(*raft.DiscardSnapshotSink)
	return is
}
