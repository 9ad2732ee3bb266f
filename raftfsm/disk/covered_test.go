package disk

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/seglog"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/sim"
)

// The type nothing is a state machine that accepts everything and does nothing.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                 { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error) { return nil, nil }
func (nothing) Restore(r io.ReadCloser) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// A follower gets a snapshot up to entry 10, and then entry 11. In one case it stores entry 11, but the
// answer gets lost. In the other case its log has twenty entries of an older term. In both cases the next
// entries from the leader are accepted, with each kind of log. Without package disk, raft would send the
// snapshot forever.
func TestF6SnapshotInTheMiddleOfTheLog(t *testing.T) {
	var content bytes.Buffer
	must.OK(t, state.New("c").StartSnapshot(state.Position{Index: 10, Term: 2}).Write(&content,
		func(read func()) { read() }))
	for _, kind := range []string{"wal", "bolt", "memory"} {
		t.Run(kind+"/answer lost", func(t *testing.T) {
			f := startFollower(t, kind)
			f.install(&content)
			must.That(t, f.put(2, 10, 2, 11), "the entry behind the snapshot is refused")
			expect.That(t, f.put(2, 10, 2, 11, 12), "the same entry and one more are refused")
			f.holds(2, 11, 12)

			// A leader finds no entry in its log that only its snapshot covers.
			f.d.Ahead(func() bool { return true }, false)
			expect.Is(t, f.d.Log().GetLog(10, new(raft.Log)), raft.ErrLogNotFound,
				"a leader reads an entry that it does not have")
			f.d.Ahead(func() bool { return false }, false)
		})
		t.Run(kind+"/own entries", func(t *testing.T) {
			f := startFollower(t, kind)
			var own []uint64
			for i := range uint64(20) {
				own = append(own, i+1)
			}
			must.That(t, f.put(1, 0, 0, own...),
				"it does not compare terms: want f.put(1, 0, 0, own...)")
			must.That(t, !f.put(2, 20, 2, 21),
				"it does not compare terms: want !f.put(2, 20, 2, 21)")
			must.That(t, !f.put(2, 10, 2, 11),
				"it does not compare terms: want !f.put(2, 10, 2, 11)")
			f.install(&content)
			expect.Equal(t, f.d.newestConfig(), 5, "the members are taken from entry")
			expect.That(t, f.put(2, 10, 2, 11), "the entry behind the snapshot is refused")
			f.holds(2, 11)
		})
	}
}

// A second copy of a snapshot may come late. Entries that were stored after the first copy then stay, because
// the leader relies on them.
func TestF5LateSnapshotLeavesTheLog(t *testing.T) {
	var content bytes.Buffer
	must.OK(t, state.New("c").StartSnapshot(state.Position{Index: 10, Term: 2}).Write(&content,
		func(read func()) { read() }))
	for _, kind := range []string{"wal", "bolt", "memory"} {
		t.Run(kind, func(t *testing.T) {
			f := startFollower(t, kind)
			f.install(&content)
			must.That(t, f.put(2, 10, 2, 11, 12), "the entries behind the snapshot are refused")
			expect.Fails(t, f.send(&content), "it was taken again")
			f.holds(2, 11, 12)
			expect.That(t, f.put(2, 12, 2, 13), "the next entry is refused")
			f.holds(2, 11, 12, 13)
		})
	}
}

// follower is raft on a Disk, and its leader.
type follower struct {
	t     *testing.T
	d     *Disk
	here  raft.ServerAddress
	trans *raft.InmemTransport // the leader's transport
	head  raft.RPCHeader
	conf  raft.Configuration
	r     *raft.Raft
}

func startFollower(t *testing.T, kind string) *follower {
	t.Helper()
	f := startFollowerWith(t, kind, nothing{})
	t.Cleanup(f.stop)
	return f
}

func startFollowerWith(t *testing.T, kind string, fsm raft.FSM) *follower {
	t.Helper()
	o := Options{Server: 1, LogStore: kind, SnapshotRetain: 2, Rand: rand.Reader, Logger: quiet,
		Fatal: func(err error) { t.Error(err) }}
	switch kind {
	case "simulated":
		power := sim.NewDisk(mathrand.New(mathrand.NewPCG(1, 1)))
		o.Dir, o.LogStore = "/var/lib/zlockd", "wal"
		o.Files = &Files{FS: power.Mount(), Stable: raft.NewInmemStore(), Log: seglog.Options{
			FirstSize: 4096, FullSize: 8192}}
	case "wal", "bolt":
		o.Dir = t.TempDir()
	}
	d := must.Get(Open(o))(t)
	here, hereTrans := raft.NewInmemTransportWithTimeout("here", time.Minute)
	leader, trans := raft.NewInmemTransportWithTimeout("leader", time.Minute)
	trans.Connect(here, hereTrans)
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = "1", hclog.NewNullLogger()
	r := must.Get(raft.NewRaft(conf, fsm, d.Log(), d.Stable(), d.Snapshots(state.CheckSnapshot, func(error) {}),
		hereTrans))(t)
	d.FollowApplied(r.AppliedIndex)
	head := raft.RPCHeader{ProtocolVersion: conf.ProtocolVersion, ID: []byte("2"), Addr: trans.EncodePeer("2",
		leader)}
	members := raft.Configuration{Servers: []raft.Server{{ID: "1", Address: here}, {ID: "2", Address: leader}}}
	return &follower{t, d, here, trans, head, members, r}
}

func (f *follower) stop() {
	expect.OK(f.t, errors.Join(f.r.Shutdown().Error(), f.d.Close()))
}

// install() sends a snapshot up to entry 10 of term 2.
func (f *follower) install(content *bytes.Buffer) {
	f.t.Helper()
	must.OK(f.t, f.send(content))
}

func (f *follower) send(content *bytes.Buffer) error { return f.sendAt(10, content.Bytes()) }

// sendAt sends a snapshot up to an entry.
func (f *follower) sendAt(index uint64, content []byte) error {
	var resp raft.InstallSnapshotResponse
	err := f.trans.InstallSnapshot("1", f.here, &raft.InstallSnapshotRequest{
		RPCHeader: f.head, SnapshotVersion: 1, Term: 2,
		LastLogIndex: index, LastLogTerm: 2, Configuration: raft.EncodeConfiguration(f.conf), ConfigurationIndex: 5,
		Size: int64(len(content))}, &resp, bytes.NewReader(content))
	if err == nil && !resp.Success {
		err = errors.New("refused")
	}
	return err
}

// put() sends entries of a term, with the index and the term of the entry before them.
func (f *follower) put(term, prev, prevTerm uint64, entries ...uint64) bool {
	f.t.Helper()
	return f.append(term, prev, prevTerm, 0, entries...).Success
}

// append() sends entries like put(), together with a commit index.
func (f *follower) append(term, prev, prevTerm, commit uint64, indexes ...uint64) (
	resp raft.AppendEntriesResponse) {
	f.t.Helper()
	req := &raft.AppendEntriesRequest{RPCHeader: f.head, Term: term, PrevLogEntry: prev, PrevLogTerm: prevTerm,
		LeaderCommitIndex: commit}
	for _, i := range indexes {
		data := entries.Begin(nil, 0)
		entries.Seal(data, int64(i))
		req.Entries = append(req.Entries, &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: data})
	}
	must.OK(f.t, f.trans.AppendEntries("1", f.here, req, &resp))
	return resp
}

// holds() checks that the log ends with these entries of one term.
func (f *follower) holds(term uint64, entries ...uint64) {
	f.t.Helper()
	last, err := f.d.Log().LastIndex()
	expect.OK(f.t, err)
	expect.Equal(f.t, last, entries[len(entries)-1], "the last entry in the log")
	for _, i := range entries {
		var l raft.Log
		if expect.OK(f.t, f.d.Log().GetLog(i, &l), "entry %d", i) {
			expect.Equal(f.t, l.Index, i, "index of entry %d", i)
			expect.Equal(f.t, l.Term, term, "term of entry %d", i)
			expect.Equal(f.t, l.Type, raft.LogCommand, "type of entry %d", i)
		}
	}
}

// While a server slowly writes its own snapshot, another server's newer snapshot replaces the whole log. The
// server's own snapshot must then fail. Otherwise raft would take it for the newest, and a leader would send
// snapshots again and again instead of entries.
func TestF6OwnSnapshotDoesNotFollowANewerOne(t *testing.T) {
	for _, kind := range []string{"wal", "bolt", "memory"} {
		t.Run(kind, func(t *testing.T) {
			f := startFollower(t, kind)
			var content bytes.Buffer
			must.OK(t, state.New("c").StartSnapshot(state.Position{Index: 10, Term: 2}).Write(&content,
				func(read func()) { read() }))
			create := func(index uint64) raft.SnapshotSink {
				snaps := f.d.Snapshots(state.CheckSnapshot, func(error) {})
				sink := must.Get(snaps.Create(raft.SnapshotVersionMax, index, 1, f.conf, 1, f.trans))(t)
				Own(sink)
				must.Get(sink.Write(content.Bytes()))(t)
				return sink
			}
			own := create(5)
			early := create(5)
			if err := early.Close(); err != nil { // early is on the disk, but raft has not recorded it yet
				t.Fatal(err)
			}
			expect.Fails(t, f.send(&content),
				"raft would note its own snapshot behind the one that was sent")
			Done(early)
			f.install(&content)
			expect.Fails(t, own.Close(), "it is taken for the newest")
			if err := own.Cancel(); err != nil { // raft cancels a snapshot whose Close fails
				t.Error(err)
			}
			expect.That(t, f.put(2, 10, 2, 11), "the entry behind the newest is refused")
			expect.OK(t, create(11).Close(), "the next one")
		})
	}
}

// The disk knows the index of the newest configuration after each of raft's operations on the log.
func TestConfigFollowsTheLog(t *testing.T) {
	d := openTest(t, t.TempDir())
	log := d.Log()
	wants := func(want uint64) {
		t.Helper()
		got := d.newestConfig()
		expect.Equal(t, got, want, "the newest configuration is entry %d", got)
	}
	wants(0)
	store := func(index uint64, typ raft.LogType) {
		t.Helper()
		must.OK(t, log.StoreLog(&raft.Log{Index: index, Term: 1, Type: typ, Data: membersAt(index)}))
	}
	for index := uint64(1); index <= 9; index++ {
		typ := raft.LogNoop
		if index == 1 || index == 4 || index == 8 {
			typ = raft.LogConfiguration
		}
		store(index, typ)
	}
	wants(8)
	if err := log.DeleteRange(1, 5); err != nil { // raft deletes entries like this after a snapshot
		t.Fatal(err)
	}
	wants(8)
	// Raft deletes entries like this if another leader has other entries.
	if err := log.DeleteRange(8, 9); err != nil {
		t.Fatal(err)
	}
	wants(4)
	store(8, raft.LogNoop)
	wants(4)
	store(9, raft.LogConfiguration)
	wants(9)
}

// The configuration of a received snapshot counts from the moment at which the snapshot is published.
func TestConfigComesWithASnapshot(t *testing.T) {
	d := openTest(t, t.TempDir())
	read := func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
	snaps := d.Snapshots(read, func(error) {})
	_, trans := raft.NewInmemTransport("here")
	for _, cancel := range []bool{true, false} {
		sink, err := snaps.Create(raft.SnapshotVersionMax, 20, 2, raft.Configuration{
			Servers: []raft.Server{{ID: "1", Address: "a:1"}}}, 17, trans)
		must.OK(t, err)
		must.Get(io.Copy(sink, bytes.NewReader(make([]byte, 100))))(t)
		expect.Equal(t, d.newestConfig(), 0, "before the end")
		if cancel {
			err = sink.Cancel()
		} else {
			err = sink.Close()
		}
		must.OK(t, err)
	}
	expect.Equal(t, d.newestConfig(), 17, "the newest configuration is entry")
}

// newestConfig returns the index of the newest configuration.
func (d *Disk) newestConfig() uint64 {
	if len(d.configs.list) == 0 {
		return 0
	}
	return d.configs.list[len(d.configs.list)-1].index
}

// membersAt returns a configuration that differs for each index.
func membersAt(index uint64) []byte {
	at := raft.ServerAddress(fmt.Sprint("a:", index))
	return raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "1", Address: at}}})
}

// The disk always knows the members together with the index of their own entry. This holds even while an
// entry with other members is on its way to the disk (R21).
func TestR21MembersHaveTheIndexOfTheirEntry(t *testing.T) {
	d := &Disk{}
	a := []raft.Server{{ID: "1", Address: "a:1"}, {ID: "2", Address: "a:2"}}
	b := []raft.Server{{ID: "1", Address: "a:1"}}
	for i, servers := range [][]raft.Server{a, b, a} {
		d.configs.add(config{index: uint64(i + 1), servers: servers})
	}
	expect.Equal(t, d.ConfigOf(b), 2, "the members of entry 2 have index")
	expect.Equal(t, d.ConfigOf(a), 3, "the members of entries 1 and 3 have index")
	expect.Equal(t, d.ConfigOf(nil), UnknownConfig, "members that no entry has have index")
	for _, test := range []struct {
		after uint64
		id    raft.ServerID
		addr  raft.ServerAddress
		want  bool
	}{{3, "2", "", true}, {2, "2", "a:2", true}, {1, "2", "", false}, {1, "1", "", true},
		{1, "1", "a:9", false}} {
		expect.Equal(t, d.StaysMember(test.after, test.id, test.addr), test.want,
			"server %s after entry %d at %q", test.id, test.after, test.addr)
	}
	d.configs.add(config{index: 9, servers: a, gap: true})
	expect.That(t, !d.StaysMember(3, "1", ""),
		"what a snapshot hides is taken for known: want !d.StaysMember(3, \"1\", \"\")")
	expect.That(t, d.StaysMember(9, "1", ""),
		"what a snapshot hides is taken for known: want d.StaysMember(9, \"1\", \"\")")
}

func openTest(t *testing.T, dir string) *Disk {
	t.Helper()
	d := must.Get(open(dir))(t)
	t.Cleanup(func() { d.Close() })
	return d
}
