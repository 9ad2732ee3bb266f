package disk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// countedStable makes the first `left` writes, and fails all later ones, as if the server had ended.
type countedStable struct {
	raft.StableStore
	left   int
	writes int
}

func (s *countedStable) Set(k, v []byte) error {
	if s.writes++; s.left == 0 {
		return errRefused
	}
	s.left--
	return s.StableStore.Set(k, v)
}

// voter is a server's raft over its own data directory.
type voter struct {
	t    *testing.T
	d    *Disk
	r    *raft.Raft
	here raft.ServerAddress
	tr   *raft.InmemTransport
}

func startVoter(t *testing.T, dir, kind string) *voter {
	t.Helper()
	v := &voter{t: t}
	var err error
	v.d, err = Open(Options{Server: 1, Dir: dir, LogStore: kind, SnapshotRetain: 2, Rand: rand.Reader,
		Logger: quiet,
		Fatal:  func(err error) { t.Error(err) }})
	must.OK(t, err)
	v.here, v.tr = raft.NewInmemTransportWithTimeout("", time.Minute)
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = "1", hclog.NewNullLogger()
	snaps := v.d.Snapshots(state.CheckSnapshot, func(error) {})
	v.r = must.Get(raft.NewRaft(conf, nothing{}, v.d.Log(), v.d.Stable(), snaps, v.tr))(t)
	return v
}

func (v *voter) stop() {
	v.t.Helper()
	must.OK(v.t, errors.Join(v.r.Shutdown().Error(), v.d.Close()))
}

// from() connects another server to this one.
func (v *voter) from(id string) (*raft.InmemTransport, raft.RPCHeader) {
	addr := raft.ServerAddress("addr-" + id)
	_, other := raft.NewInmemTransportWithTimeout(addr, time.Minute)
	other.Connect(v.here, v.tr)
	return other, raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id),
		Addr: other.EncodePeer(raft.ServerID(id), addr)}
}

// votes() asks for a vote as zlockd's elections do, without a pre-vote.
func (v *voter) votes(candidate string, term, lastIndex, lastTerm uint64) bool {
	v.t.Helper()
	tr, head := v.from(candidate)
	var resp raft.RequestVoteResponse
	req := &raft.RequestVoteRequest{RPCHeader: head, Term: term, LastLogIndex: lastIndex, LastLogTerm: lastTerm,
		LeadershipTransfer: true}
	must.OK(v.t, tr.RequestVote("1", v.here, req, &resp))
	return resp.Granted
}

func (v *voter) appends(leader string, term uint64, from, to uint64) {
	v.t.Helper()
	tr, head := v.from(leader)
	req := &raft.AppendEntriesRequest{RPCHeader: head, Term: term}
	for i := from; i <= to; i++ {
		data := entries.Begin(nil, 0)
		entries.Seal(data, int64(i))
		req.Entries = append(req.Entries, &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: data})
	}
	var resp raft.AppendEntriesResponse
	err := tr.AppendEntries("1", v.here, req, &resp)
	must.OK(v.t, err)
	must.That(v.t, resp.Success, "the server refuses entries %d to %d of term %d", from, to, term)
}

// A server with entries of term 3 votes for server 2 in term 4, and ends at one of the writes that store this
// vote. After a restart it must not vote for server 3 in term 4, because the log of server 3 is empty.
func TestG2VoteThatACrashInterruptsIsNotGrantedWithoutTheLog(t *testing.T) {
	for _, kind := range []string{"wal", "bolt"} {
		for left := 0; ; left++ {
			what := fmt.Sprintf("%s, %d writes", kind, left)
			dir := t.TempDir()
			v := startVoter(t, dir, kind)
			must.That(t, v.votes("3", 2, 0, 0), "%v: no vote in term 2", what)
			v.appends("2", 3, 1, 20)
			v.stop()

			d, err := Open(Options{Server: 1, Dir: dir, LogStore: kind, SnapshotRetain: 2, Rand: rand.Reader,
				Logger: quiet,
				Fatal:  func(error) {}})
			must.OK(t, err, "%v", what)
			stable := d.stores.Stable.(*terms)
			counted := &countedStable{StableStore: stable.below, left: left}
			stable.below = counted
			// These are the calls with which raft stores a new term and then its vote. In a crash, one of them and all
			// later ones have no effect.
			err = stable.SetUint64([]byte(keyCurrentTerm), 4)
			if err == nil {
				err = stable.SetUint64([]byte(keyVoteTerm), 4)
			}
			if err == nil {
				err = stable.Set([]byte(keyVoteFor), []byte("addr-2"))
			}
			must.OK(t, d.Close(), "%v", what)

			v = startVoter(t, dir, kind)
			expect.That(t, !v.votes("3", 4, 0, 0),
				"%v: server 3, whose log is empty, has the vote of a server with 20 entries", what)
			if given := err == nil; v.votes("4", 4, 20, 3) == given {
				t.Error(what, ": a second candidate with as long a log; the vote was given: ", given)
			}
			v.stop()
			if err == nil {
				expect.Equal(t, counted.writes, 2,
					"%s: a term and a vote took %d writes", kind, counted.writes)
				break
			}
		}
	}
}

// A server refuses a terms file that is older than its log or snapshot, because the server may have voted
// since.
func TestTermsOlderThanTheLogAreRefused(t *testing.T) {
	for what, put := range map[string]func(*Disk) error{
		"log": func(d *Disk) error { return d.Log().StoreLog(&raft.Log{Index: 1, Term: 5, Type: raft.LogNoop}) },
		"snapshot": func(d *Disk) error {
			sink, err := d.stores.Snapshots.Create(raft.SnapshotVersionMax, 1, 5, raft.Configuration{}, 1, nil)
			if err != nil {
				return err
			}
			return sink.Close()
		},
	} {
		for term, refused := range map[uint64]bool{2: true, 4: true, 5: false, 6: false} {
			dir := t.TempDir()
			d, err := open(dir)
			must.OK(t, err)
			must.OK(t, errors.Join(d.Stable().SetUint64([]byte(keyCurrentTerm), term), put(d), d.Close()))
			if d, err = open(dir); err == nil {
				d.Close()
			}
			expect.Equal(t, err != nil, refused, "a %s of term 5 beside term %d: %v", what, term, err)
		}
	}
}

// A directory remembers its kind of log, and refuses another kind.
func TestLogKindIsRemembered(t *testing.T) {
	for _, kind := range []string{"wal", "bolt"} {
		dir := t.TempDir()
		opened := func(kind string) error {
			d, err := Open(Options{Server: 1, Dir: dir, LogStore: kind, SnapshotRetain: 1, Rand: rand.Reader,
				Logger: quiet,
				Fatal:  func(error) {}})
			if err == nil {
				err = d.Close()
			}
			return err
		}
		other := map[string]string{"wal": "bolt", "bolt": "wal"}[kind]
		expect.OK(t, errors.Join(opened(kind), opened(kind)))
		expect.Fails(t, opened(other), "a directory of %s is opened as one of %s", kind, other)
	}
}
