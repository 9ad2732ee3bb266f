package upkeep

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// openDisk returns the disk of a server that keeps its data in a directory.
func openDisk(t *testing.T) *disk.Disk {
	t.Helper()
	d := must.Get(disk.Open(disk.Options{Server: 1, Dir: t.TempDir(), LogStore: "wal", SnapshotRetain: 2,
		Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) { t.Error(err) }}))(t)
	t.Cleanup(func() { expect.OK(t, d.Close()) })
	return d
}

// fakeRaft takes the settings that the upkeep gives to raft.
type fakeRaft struct {
	Raft
	last uint64
	conf raft.ReloadableConfig
}

func (r *fakeRaft) LastIndex() uint64                          { return r.last }
func (r *fakeRaft) ReloadableConfig() raft.ReloadableConfig    { return r.conf }
func (r *fakeRaft) ReloadConfig(c raft.ReloadableConfig) error { r.conf = c; return nil }

// After a snapshot a log keeps a limited number of entries and bytes, and more if a follower lags behind a
// little.
func TestEntriesThatStayBehindASnapshot(t *testing.T) {
	d, logged := openDisk(t), uint64(1000)
	for i := range logged {
		must.OK(t, d.Log().StoreLogs([]*raft.Log{{Index: i + 1, Term: 1, Type: raft.LogCommand,
			Data: make([]byte, 1000)}}))
	}
	const mib = 1 << 20
	for name, c := range map[string]struct {
		most        uint64
		bytes       int64
		forgets     bool
		behind      uint64 // how far the only follower lags behind; 0: no follower
		least, want uint64 // bounds of the number of entries that stay
	}{
		"all that fit":                 {mib, 64 * mib, false, 0, logged, logged},
		"no more than is wanted":       {100, 64 * mib, false, 0, 100, 100},
		"in bytes":                     {mib, 200_000, false, 0, 150, 200},
		"a few, however long they are": {mib, 1000, false, 0, trailingLeast, trailingLeast},
		"for a follower that is behind": {mib, 200_000, false, 500, 500 + trailingLeast,
			500 + trailingLeast},
		"but not for one that is far behind":   {mib, 50_000, false, 900, 150, 200},
		"of which nothing will be read again":  {mib, 64 * mib, true, 0, trailingLeast, trailingLeast},
		"and no more than is wanted even then": {5, 64 * mib, true, 0, 5, 5},
	} {
		r := &fakeRaft{last: logged}
		u := New(Options{TrailingLogs: c.most, TrailingBytes: c.bytes, Forgets: c.forgets,
			Followers: func() map[uint32]uint64 {
				if c.behind == 0 {
					return nil
				}
				return map[uint32]uint64{2: logged - c.behind}
			}})
		u.Use(d, r)
		must.OK(t, u.boundTrailing())
		got := r.conf.TrailingLogs
		expect.That(t, got >= c.least && got <= c.want, "%s: %d entries stay, want %d to %d", name, got,
			c.least, c.want)
	}
}

// A snapshot is due by requests, by bytes and by time. The test meets each limit exactly.
func TestSnapshotsAreDueAtTheirBounds(t *testing.T) {
	o := Options{Entries: 100, Bytes: 1000}
	const took = time.Second
	for _, c := range []struct {
		requests, bytes, size int64
		ago                   time.Duration
		due                   bool
	}{
		{99, 999, 0, time.Hour, false}, {100, 0, 0, time.Hour, true}, {0, 1000, 50, time.Hour, true},
		{0, 1000, 50, 0, false}, {0, 1049, 50, 0, false}, {0, 1050, 50, 0, true},
		{100, 0, 0, snapshotRest*took - 1, false}, {100, 0, 0, snapshotRest * took, true},
	} {
		expect.Equal(t, o.due(c.requests, c.bytes, c.size, c.ago, took), c.due, "%+v", c)
	}
	for _, c := range []struct {
		requests      int64
		ago, interval time.Duration
		due           bool
	}{
		{1, time.Hour, 0, false}, {1, time.Hour, time.Hour, true}, {1, time.Hour - 1, time.Hour, false},
		{0, time.Hour, time.Hour, false},
	} {
		o.Interval = c.interval
		expect.Equal(t, o.due(c.requests, 0, 0, c.ago, 0), c.due, "%+v", c)
	}
}

// A long log makes a snapshot due, but not right after the last one. With a larger tree, the server waits for
// more log or for a longer time before the next snapshot.
func TestSnapshotsRest(t *testing.T) {
	const mib = 1 << 20
	o := Options{Entries: 100, Bytes: 32 * mib}
	for name, c := range map[string]struct {
		requests, bytes, size int64
		ago, took             time.Duration
		due                   bool
	}{
		"nothing":                {},
		"the first, by requests": {requests: 100, due: true},
		"the first, by bytes":    {requests: 1, bytes: 32 * mib, due: true},
		"not yet":                {requests: 99, bytes: 31 * mib, ago: time.Hour},
		"a large tree, right after": {requests: 1000, bytes: 500 * mib, size: 1000 * mib,
			ago: 10 * time.Second, took: 5 * time.Second},
		"a large tree, after a rest": {requests: 100, size: 1000 * mib, ago: 20 * time.Second,
			took: 5 * time.Second, due: true},
		"a large tree, as much log as tree": {requests: 1000, bytes: 1032 * mib, size: 1000 * mib,
			took: 5 * time.Second, due: true},
		"a small tree": {requests: 1, bytes: 33 * mib, size: 1 * mib, took: time.Second, due: true},
	} {
		expect.Equal(t, o.due(c.requests, c.bytes, c.size, c.ago, c.took), c.due, "%s: a snapshot is due", name)
	}
	o.Interval = time.Minute
	expect.That(t, o.due(1, 1, 0, time.Minute, time.Second), "no snapshot is due after the interval")
	expect.That(t, !o.due(0, 0, 0, time.Hour, 0), "a snapshot is due after the interval, without a request")
}

// Full gives a reason when the tree has reached a limit. A tree without limits is never full.
func TestL19BoundsOfTheTree(t *testing.T) {
	s := state.New("c")
	tree := s.Tree()
	nodes, bytes := tree.Count(), tree.Bytes()+tree.ACLBytes()
	for _, c := range []struct {
		nodes int
		bytes int64
		want  string
	}{
		{0, 0, ""}, {nodes + 1, 0, ""}, {nodes, 0, fmt.Sprintf("there are %d nodes", nodes)},
		{nodes - 1, 0, "nodes"},
		{0, bytes + 1, ""}, {0, bytes, fmt.Sprintf("the data and ACLs are %d bytes", bytes)},
		{nodes + 1, bytes, "bytes"},
	} {
		u := New(Options{MaxNodes: c.nodes, MaxBytes: c.bytes, View: func(f func(*state.State)) { f(s) }})
		why := u.Full()
		expect.Has(t, why, c.want, "limits of %d nodes and %d bytes", c.nodes, c.bytes)
		expect.Equal(t, why == "", c.want == "", "limits of %d nodes and %d bytes: there is room; the reason is %q",
			c.nodes, c.bytes, why)
		u.NoteDisk("little room")
		if c.want == "" {
			expect.Equal(t, u.Full(), "little room")
		}
	}
}

// If the free space of a disk is a byte or more below the reserve, the disk has too little. If the free space
// cannot be read, it counts as enough.
func TestRoomThatIsKeptFree(t *testing.T) {
	d := openDisk(t)
	var free int64
	var fails error
	for _, c := range []struct {
		free, less int64
		fails      error
		low        bool
	}{
		{1000, 0, nil, false}, {999, 0, nil, true}, {1500, 500, nil, false}, {1500, 501, nil, true},
		{5 << 20, 9 << 20, nil, true},
		{0, 0, errors.New("no such disk"), false},
	} {
		free, fails = c.free, c.fails
		look := func(dir string) (int64, error) {
			expect.Equal(t, dir, "d")
			return free, fails
		}
		u := New(Options{Dir: "d", DiskReserve: 1000, FreeBytes: look})
		u.Use(d, nil)
		why := u.lowWith(c.less)
		expect.Equal(t, why != "", c.low, "%d bytes are free, %d less: %s", c.free, c.less, why)
		expect.That(t, !strings.Contains(why, "-"), "less than nothing is left: %s", why)
		expect.Equal(t, errors.Is(u.Room(c.less), ErrNoRoom), c.low, "%d bytes are free, %d less",
			c.free, c.less)
		u.o.DiskReserve = -1
		expect.OK(t, u.Room(c.less), "without a reserve")
	}
}
