package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Few of raft's log lines count as warnings, and none once the server is told to stop.
func TestLinesOfRaft(t *testing.T) {
	for _, c := range []struct {
		line   string
		closed bool
		want   string
	}{
		{"[WARN]  raft: failed to take snapshot: error=x\n", false,
			`level=WARN msg="raft: failed to take snapshot: error=x"`},
		{"[WARN]  raft: failed to take snapshot: error=x\n", true,
			`level=DEBUG msg="raft: failed to take snapshot: error=x"`},
		{"[ERROR] raft: failed to appendEntries to: peer=x\n", false,
			`level=DEBUG msg="raft: failed to appendEntries to: peer=x"`},
		{"raft: failed to restore snapshot\n", false, `level=WARN msg="raft: failed to restore snapshot"`},
		{"[INFO]  failed to take snapshot\n", false, `level=DEBUG msg="failed to take snapshot"`},
	} {
		var log must.Text
		var closed atomic.Bool
		closed.Store(c.closed)
		l := lineLogger{slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), &closed}
		n, err := l.Write([]byte(c.line))
		expect.OK(t, err)
		expect.Equal(t, n, len(c.line), "bytes written")
		expect.Has(t, log.String(), c.want)
	}
	var log must.Text
	var closed atomic.Bool
	hcLogger(slog.New(slog.NewTextHandler(&log, nil)), &closed).Warn("failed to compact logs", "error", "x")
	expect.Has(t, log.String(), "level=WARN")
	expect.Has(t, log.String(), "failed to compact logs: error=x")
}

// A line from raft that the log drops is not formatted.
func TestRaftLinesThatAreLeftOutAreNotFormatted(t *testing.T) {
	var log must.Text
	var closed atomic.Bool
	raftLog := hcLogger(slog.New(slog.NewTextHandler(&log, nil)), &closed)
	var formatted atomic.Bool
	raftLog.Info("entering follower state", "leader", text(func() { formatted.Store(true) }))
	expect.That(t, !formatted.Load(), "a line below the log's level was formatted")
	raftLog.Warn("failed to compact logs", "error", text(func() { formatted.Store(true) }))
	expect.That(t, formatted.Load(), "a warning was not formatted: %q", log.String())
}

// text is a value whose formatting calls a function.
type text func()

func (f text) String() string {
	f()
	return "x"
}

// future is a raft future that ends with an error, or never.
type future struct {
	err   error
	never <-chan struct{}
}

func (f future) Error() error {
	if f.never != nil {
		<-f.never
	}
	return f.err
}

// A request waits for raft's future until its context ends.
func TestFuturesAreAwaited(t *testing.T) {
	expect.OK(t, Await(t.Context(), future{}))
	err := Await(t.Context(), future{err: raft.ErrNotLeader})
	expect.Is(t, err, raft.ErrNotLeader)
	expect.Equal(t, status.Of(err), status.NoLeader, "status.Of(err)")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	err = Await(over, future{never: t.Context().Done()})
	expect.Is(t, err, context.Canceled)
	expect.Equal(t, status.Of(err), status.Interrupted, "status.Of(err)")
}

// badLog is a log that cannot be written.
type badLog struct{ *raft.InmemStore }

var errBadLog = errors.New("the log cannot be written")

func (badLog) StoreLogs([]*raft.Log) error { return errBadLog }

func (badLog) StoreLog(*raft.Log) error { return errBadLog }

// The log cache returns the errors of the log to which it writes, both for entries that it keeps and for
// entries that are too long to keep.
func TestLogCacheTellsErrors(t *testing.T) {
	c := must.Get(newLogCache(badLog{raft.NewInmemStore()}))(t)
	for _, size := range []int{1, cacheLongest, cacheLongest + 1} {
		l := &raft.Log{Index: 1, Term: 1, Data: make([]byte, size)}
		for _, err := range []error{c.StoreLog(l), c.StoreLogs([]*raft.Log{l})} {
			if expect.Fails(t, err, "an entry of %d bytes", size) {
				expect.Has(t, err.Error(), errBadLog.Error(), "an entry of %d bytes", size)
			}
		}
	}
}

// The code of an error of raft says whether the client may try again at once, or must first find out what its
// request did.
func TestErrorsOfRaftHaveCodes(t *testing.T) {
	for err, want := range map[error]status.Code{
		raft.ErrNotLeader: status.NoLeader, raft.ErrLeadershipTransferInProgress: status.NoLeader,
		raft.ErrLeadershipLost: status.Interrupted, raft.ErrRaftShutdown: status.Interrupted,
		raft.ErrEnqueueTimeout: "",
	} {
		got := coded(fmt.Errorf("wrapped: %w", err))
		expect.Equal(t, status.Of(got), want, "%v", err)
		expect.Is(t, got, err)
	}
	expect.OK(t, coded(nil))
}

// Each leadership has a context that ends with it. The server skips a leadership that has ended before the
// server takes it up.
func TestR12LeadershipsAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLeadership()
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { l.Listen(ctx); close(ended) }()
		note := func(leads bool) { l.notes <- leads; synctest.Wait() }
		note(false)
		expect.Equal(t, len(l.Won), 0, "leaderships")
		note(true)
		first := <-l.Won
		expect.OK(t, first.Err())
		note(false)
		expect.Fails(t, first.Err(), "it goes on")
		note(true)
		note(false)
		expect.Equal(t, len(l.Won), 0, "leaderships that were over before they were taken")
		note(true)
		note(true) // won again, before the loss was noted
		must.Equal(t, len(l.Won), 1, "leaderships")
		second := <-l.Won
		expect.OK(t, second.Err())
		end()
		<-ended
		expect.Fails(t, second.Err(), "it outlives the server")
	})
}

// The type counting is a log that counts how often it is read.
type counting struct {
	*raft.InmemStore
	reads int
}

func (c *counting) GetLog(i uint64, l *raft.Log) error {
	c.reads++
	return c.InmemStore.GetLog(i, l)
}

func TestLogCacheIsBoundedInEntriesAndBytes(t *testing.T) {
	below := &counting{InmemStore: raft.NewInmemStore()}
	c := must.Get(newLogCache(below))(t)
	last := uint64(0)
	store := func(n, size int) {
		t.Helper()
		for range n {
			last++
			must.OK(t, c.StoreLog(&raft.Log{Index: last, Term: 1, Data: make([]byte, size)}))
		}
	}
	kept := func(want int) {
		t.Helper()
		below.reads = 0
		for i := uint64(1); i <= last; i++ {
			var l raft.Log
			err := c.GetLog(i, &l)
			must.OK(t, err, "entry %d", i)
			must.Equal(t, l.Index, i, "entry %d: l.Index", i)
		}
		expect.Equal(t, int(last)-below.reads, want, "entries are kept")
	}
	store(200, 10)
	kept(cacheEntries)
	store(cacheEntries, cacheLongest+1)
	kept(cacheEntries) // these entries are too long to be kept
	store(2, cacheLongest)
	store(1, cacheLongest+1)
	kept(cacheEntries)
	must.OK(t, c.DeleteRange(last, last))
	last--
	kept(0)
	last++
	must.OK(t, c.StoreLog(&raft.Log{Index: last, Term: 2}))
	var l raft.Log
	err := c.GetLog(last, &l)
	if expect.OK(t, err, "an entry that was replaced") {
		expect.Equal(t, l.Term, 2, "an entry that was replaced: l.Term")
	}
	// A new entry takes the place of a kept entry that was deleted.
	must.OK(t, c.DeleteRange(last, last))
	must.OK(t, c.StoreLog(&raft.Log{Index: last, Term: 3, Data: make([]byte, cacheLongest+1)}))
	err = c.GetLog(last, &l)
	if expect.OK(t, err, "a long entry in the place of a kept one") {
		expect.Equal(t, l.Term, 3, "a long entry in the place of a kept one: l.Term")
	}
	// An entry may come after a gap, as after a snapshot from the leader.
	last += 100
	must.OK(t, c.StoreLog(&raft.Log{Index: last, Term: 4}))
	err = c.GetLog(last, &l)
	if expect.OK(t, err, "an entry behind a gap") {
		expect.Equal(t, l.Term, 4, "an entry behind a gap: l.Term")
	}
}

// Raft's settings follow from the server's options.
func TestSettingsOfRaft(t *testing.T) {
	o := Options{ID: 7, HeartbeatTimeout: 2 * time.Second, TrailingLogs: 55}
	c := o.config()
	expect.Equal(t, c.LocalID, raft.ServerID("7"))
	expect.List(t, []time.Duration{c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout, c.CommitTimeout,
		c.SnapshotInterval}, []time.Duration{3 * time.Second, 3 * time.Second, 2 * time.Second,
		250 * time.Millisecond,
		24 * time.Hour})
	expect.List(t, []uint64{uint64(c.MaxAppendEntries), c.TrailingLogs, c.SnapshotThreshold}, []uint64{64, 55,
		math.MaxUint64})
	expect.That(t, c.NoLegacyTelemetry, "raft's old telemetry is on")
	expect.That(t, c.NoSnapshotRestoreOnStart, "raft restores a snapshot at its start")
	expect.That(t, !c.PreVoteDisabled, "the pre-vote is off")
	o.HeartbeatTimeout = 100 * time.Millisecond
	expect.Equal(t, o.config().CommitTimeout, 100*time.Millisecond)
	expect.OK(t, raft.ValidateConfig(c))
}

func TestR1R23RaftSettings(t *testing.T) {
	o := Options{ID: 1, HeartbeatTimeout: time.Second, TrailingLogs: 10_240}
	conf := o.config()
	// The leader's lease must end before a follower can stand for election.
	expect.Equal(t, conf.LeaderLeaseTimeout, o.HeartbeatTimeout,
		"raft settings: lease %v heartbeat %v prevote off %v trailing %d: conf.LeaderLeaseTimeout",
		conf.LeaderLeaseTimeout, conf.HeartbeatTimeout, conf.PreVoteDisabled, conf.TrailingLogs)
	expect.That(t, conf.HeartbeatTimeout >= conf.LeaderLeaseTimeout,
		"raft settings: lease %v heartbeat %v prevote off %v trailing %d",
		conf.LeaderLeaseTimeout, conf.HeartbeatTimeout, conf.PreVoteDisabled, conf.TrailingLogs)
	expect.That(t, !conf.PreVoteDisabled,
		"raft settings: lease %v heartbeat %v prevote off %v trailing %d: want !conf.PreVoteDisabled",
		conf.LeaderLeaseTimeout, conf.HeartbeatTimeout, conf.PreVoteDisabled, conf.TrailingLogs)
	expect.That(t, conf.TrailingLogs >= 10240,
		"raft settings: lease %v heartbeat %v prevote off %v trailing %d: want conf.TrailingLogs >= 10240",
		conf.LeaderLeaseTimeout, conf.HeartbeatTimeout, conf.PreVoteDisabled, conf.TrailingLogs)
}
