package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// ensemble is a cluster in this process that keeps its data on disk.
type ensemble struct {
	t       *testing.T
	peers   map[uint32]string
	bound   map[uint32]net.Listener // taken before anybody needs them
	dirs    map[uint32]string
	servers map[uint32]*Instance
	log     *slog.Logger
	more    []func(*Options)
}

func newEnsemble(t *testing.T, n int, log *slog.Logger, more ...func(*Options)) *ensemble {
	t.Helper()
	e := &ensemble{t: t, log: log, more: more, peers: map[uint32]string{}, bound: map[uint32]net.Listener{},
		dirs: map[uint32]string{}, servers: map[uint32]*Instance{}}
	for id := uint32(1); id <= uint32(n); id++ {
		ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		e.peers[id], e.bound[id], e.dirs[id] = ln.Addr().String(), ln, t.TempDir()
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for id := range e.peers {
		wg.Go(func() {
			i, err := e.start(id)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			e.servers[id] = i
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, i := range e.servers {
			i.Close(context.Background())
		}
	})
	return e
}

func (e *ensemble) start(id uint32) (*Instance, error) {
	ctx, cancel := context.WithTimeout(e.t.Context(), time.Minute)
	defer cancel()
	listen := func(addr string) (net.Listener, error) {
		if ln := e.bound[id]; ln != nil {
			return ln, nil
		}
		return net.Listen("tcp", addr)
	}
	o := Options{ID: id, ClientAddr: "127.0.0.1:0", Logger: e.log.With("server", id),
		Raft: raftfsm.Options{Peers: e.peers, PeerInsecure: true, DataDir: e.dirs[id], Listen: listen}}
	for _, f := range e.more {
		f(&o)
	}
	i, err := Start(ctx, o)
	if err == nil {
		err = i.Ready(ctx)
	}
	return i, err
}

// restart starts a server again that was closed.
func (e *ensemble) restart(id uint32) *Instance {
	e.t.Helper()
	e.bound[id] = nil
	i := must.Get(e.start(id))(e.t)
	e.servers[id] = i
	return i
}

func (e *ensemble) leader() (uint32, *Instance) {
	e.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for id, i := range e.servers {
			if s := i.Status(0); s.Mode == admin.Leader && s.Serving {
				return id, i
			}
		}
	}
	e.t.Fatal("nobody leads")
	return 0, nil
}

func (e *ensemble) write(i *Instance, prefix string, n int) {
	e.t.Helper()
	c := must.Get(wire.Open(i.ClientAddr()))(e.t)
	defer c.Close()
	for k := range n {
		create(e.t, c, fmt.Sprint(prefix, k), 0)
	}
}

// moved waits until a summary or counter of a server has a count, and returns it.
func (e *ensemble) moved(i *Instance, name string) admin.Summary {
	e.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		s := i.Status(admin.NeedMetrics)
		v, ok := s.Summaries[name]
		if c := s.Counters[name]; !ok {
			v.Count = c
		}
		if v.Count > 0 {
			return v
		}
		if time.Now().After(end) {
			e.t.Fatalf("%s never moves", name)
		}
	}
}

// What operators rely on moves when its cause is there.
func TestClusterMeasuresMove(t *testing.T) {
	e := newEnsemble(t, 3, slog.New(slog.DiscardHandler))
	first, led := e.leader()
	e.write(led, "/a", 20)
	for _, name := range []string{"proposal_count", "proposal_latency", "quorum_ack_latency",
		"propagation_latency", "unavailable_time",
		"leader_unavailable_time", "election_time", "sync_processor_batch_size", "sync_processor_queue_size",
		"fsynctime", "commit_count"} {
		e.moved(led, name)
	}
	for id, i := range e.servers {
		e.moved(i, "propagation_latency")
		e.moved(i, "election_time")
		if s := i.Status(0); id == first && (s.Proposals.Last <= 0 || s.Proposals.Min <= 0 ||
			s.Proposals.Max < s.Proposals.Min || s.Leads <= 0) {
			t.Errorf("the leader shows %+v, leading for %v", s.Proposals, s.Leads)
		}
		if at := i.Status(0).Snapshot.Time; !at.IsZero() {
			t.Errorf("server %d shows a snapshot of %v before the first", id, at)
		}
	}

	// A snapshot is measured, and told of until the next one.
	must.OK(t, led.Node().Snapshot())
	e.moved(led, "snapshottime")
	s := led.Status(0)
	if s.Snapshot.Zxid <= 0 || s.Snapshot.Zxid > s.Zxid || time.Since(s.Snapshot.Time) > time.Hour {
		t.Errorf("newest snapshot: zxid %d of %d, %v", s.Snapshot.Zxid, s.Zxid, s.Snapshot.Time)
	}
	e.write(led, "/b", 5)

	// The leader goes: the others elect.
	before := map[uint32]int64{}
	for id, i := range e.servers {
		before[id] = i.Status(admin.NeedMetrics).Summaries["election_time"].Count
	}
	must.OK(t, led.Close(context.Background()))
	delete(e.servers, first)
	_, next := e.leader()
	for id, i := range e.servers {
		for end := time.Now().Add(time.Minute); i.Status(
			admin.NeedMetrics).Summaries["election_time"].Count <= before[id]; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("server %d did not notice an election", id)
			}
		}
		e.moved(i, "looking_count")
	}
	e.moved(next, "leader_unavailable_time")

	// And comes back: what it read at its start is told, the snapshot too.
	back := e.restart(first)
	e.write(next, "/c", 5)
	for _, name := range []string{"dbinittime", "startup_snap_load_time", "startup_txns_loaded",
		"startup_txns_load_time"} {
		e.moved(back, name)
	}
	if got := back.Status(0); got.Snapshot.Zxid != s.Snapshot.Zxid || got.Snapshot.Time.IsZero() {
		t.Errorf("after a restart: snapshot of zxid %d at %v, was %d", got.Snapshot.Zxid, got.Snapshot.Time,
			s.Snapshot.Zxid)
	}
}
