package disk

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/seglog"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/simdisk"
)

// slowDisk is a Disk whose log is on a disk that syncs only when it may.
type slowDisk struct {
	*Disk
	files *simdisk.Disk
	log   *seglog.Log

	mu   sync.Mutex
	flow chan struct{} // closed: syncs pass
}

func newSlowDisk(t *testing.T) *slowDisk {
	s := &slowDisk{files: simdisk.New(rand.New(rand.NewPCG(1, 2))), flow: make(chan struct{})}
	close(s.flow)
	s.files.OnOp(func(op simdisk.Op) error {
		if op.Kind == "sync" {
			s.mu.Lock()
			flow := s.flow
			s.mu.Unlock()
			<-flow
		}
		return nil
	})
	s.open(t)
	return s
}

func (s *slowDisk) open(t *testing.T) {
	log := must.Get(seglog.Open("log", seglog.Options{FS: s.files.Mount(), FirstSize: 16 << 10}))(t)
	mem := NewMemoryStores(false)
	mem.Log, s.log = log, log
	s.Disk = must.Get(Open(Options{Memory: mem, Rand: rand.NewChaCha8([32]byte{}), Logger: quiet,
		Fatal: func(error) {}}))(t)
}

// hold lets no sync pass until the function that it returns is called.
func (s *slowDisk) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	flow := make(chan struct{})
	s.flow = flow
	return sync.OnceFunc(func() { close(flow) })
}

func command(index uint64) *raft.Log { return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand} }

// The clients' entries of a leader do not wait for the disk; WaitDurable does.
func TestAheadLeadersEntriesAreReadableAtOnce(t *testing.T) {
	s := newSlowDisk(t)
	s.Ahead(func() bool { return true }, false)
	release := s.hold()
	defer release()
	must.OK(t, s.Log().StoreLogs([]*raft.Log{command(1), command(2)}))
	if last, _ := s.Log().LastIndex(); last != 2 || s.Durable() != 0 {
		t.Errorf("last entry %d, durable %d", last, s.Durable())
	}
	waited := make(chan error)
	go func() { waited <- s.WaitDurable(2) }()
	select {
	case <-waited:
		t.Error("entry 2 was said to be durable while no sync passed")
	case <-time.After(20 * time.Millisecond):
	}
	release()
	if err := <-waited; err != nil || s.Durable() != math.MaxUint64 {
		t.Errorf("WaitDurable: %v, durable %d", err, s.Durable())
	}
	if count, _, _ := s.Syncs(); count == 0 {
		t.Error("the append is not counted")
	}
}

// Everything else waits for itself and for what was stored before.
func TestAheadEverythingElseIsDurableWhenItReturns(t *testing.T) {
	leads, follows := func() bool { return true }, func() bool { return false }
	for what, c := range map[string]struct {
		leads func() bool
		do    func(*slowDisk) error
		last  uint64 // of the log afterwards
	}{
		"a follower's entry": {follows, func(s *slowDisk) error { return s.Log().StoreLog(command(2)) }, 2},
		"a leader's first": {leads, func(s *slowDisk) error {
			return s.Log().StoreLog(&raft.Log{Index: 2, Type: raft.LogNoop, Term: 1})
		}, 2},
		"a barrier": {leads, func(s *slowDisk) error {
			return s.Log().StoreLog(&raft.Log{Index: 2, Type: raft.LogBarrier, Term: 1})
		}, 2},
		"a configuration entry": {leads, func(s *slowDisk) error {
			return s.Log().StoreLog(&raft.Log{Index: 2, Type: raft.LogConfiguration, Term: 1, Data: membersAt(2)})
		}, 2},
		"one among others": {leads, func(s *slowDisk) error {
			return s.Log().StoreLogs([]*raft.Log{command(2), {Index: 3, Type: raft.LogConfiguration, Term: 1,
				Data: membersAt(3)}})
		}, 3},
		"a term": {leads, func(s *slowDisk) error {
			return s.Stable().SetUint64([]byte("CurrentTerm"),
				2)
		}, 1},
		"a vote": {leads, func(s *slowDisk) error {
			return s.Stable().Set([]byte("LastVoteCand"),
				[]byte("2"))
		}, 1},
		"the head of the log": {leads, func(s *slowDisk) error { return s.Log().DeleteRange(0, 0) }, 1},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSlowDisk(t)
			s.Ahead(leads, false)
			release := s.hold()
			defer release()
			must.OK(t, s.Log().StoreLog(command(1)))
			s.Ahead(c.leads, false)
			done := make(chan error, 1)
			go func() { done <- c.do(s) }()
			select {
			case <-done:
				t.Errorf("%s is not durable when it returns", what)
			case <-time.After(20 * time.Millisecond):
			}
			release()
			must.OK(t, <-done)
			s.files.PowerLoss()
			s.open(t)
			if last, _ := s.log.LastIndex(); last != c.last {
				t.Errorf("after a loss of power the log reaches to %d, want %d", last, c.last)
			}
		})
	}
}
