package peer

import (
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/must"
)

// applied is a state that remembers which entries it was given.
type applied struct {
	mu   sync.Mutex
	data []string
}

func (a *applied) Apply(l *raft.Log) any {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.data = append(a.data, string(l.Data))
	return nil
}

func (a *applied) list() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.data
}

func (a *applied) Snapshot() (raft.FSMSnapshot, error) { return nil, io.EOF }
func (a *applied) Restore(io.ReadCloser) error         { return nil }

// A leader's word of what is committed may reach a follower before the entries
// that it is about. Where that follower holds others in their place, of a leader
// that is gone, raft takes them for the committed ones.
func TestNoCommitIsToldBeyondAMessage(t *testing.T) {
	one, two := open(t, 1, &host{}), open(t, 2, &host{})
	members := raft.Configuration{Servers: []raft.Server{
		{ID: ServerID(1), Address: raft.ServerAddress(one.Addr())},
		{ID: ServerID(2), Address: raft.ServerAddress(two.Addr())}}}
	store := raft.NewInmemStore()
	store.SetUint64([]byte("CurrentTerm"), 2)
	store.StoreLogs([]*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(members)},
		{Index: 2, Term: 1, Data: []byte("both")},
		{Index: 3, Term: 2, Data: []byte("never committed")}})
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = ServerID(1), hclog.NewNullLogger()
	conf.HeartbeatTimeout, conf.ElectionTimeout = time.Hour, time.Hour
	trans := one.Transport(func() uint64 { return 100 })
	fsm := new(applied)
	r := must.Get(raft.NewRaft(conf, fsm, store, store, raft.NewDiscardSnapshotStore(), trans))(t)
	defer func() { r.Shutdown().Error() }()
	m := startTransport(t, two, new(atomic.Bool))
	ask := func(prev, prevTerm uint64, entries ...*raft.Log) {
		t.Helper()
		var resp raft.AppendEntriesResponse
		req := raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax,
			ID: []byte("2"), Addr: []byte(two.Addr())},
			Term: 3, PrevLogEntry: prev, PrevLogTerm: prevTerm, Entries: entries, LeaderCommitIndex: 4}
		err := m.AppendEntries(ServerID(1), raft.ServerAddress(one.Addr()), &req, &resp)
		must.That(t, err == nil && resp.Success, "%+v, %v", resp, err)
	}
	// raft read how long its log was before it read what is committed
	ask(2, 1)
	ask(1, 1, &raft.Log{Index: 2, Term: 1, Data: []byte("both")})          // as many as a message takes
	ask(2, 1, &raft.Log{Index: 3, Term: 3, Data: []byte("committed")})     // and here they come
	ask(3, 3, &raft.Log{Index: 4, Term: 3, Data: []byte("committed too")}) // and the commit index with them
	for end := time.Now().Add(20 * time.Second); len(fsm.list()) < 3 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	got := fsm.list()
	if len(got) != 3 || got[0] != "both" || got[1] != "committed" || got[2] != "committed too" {
		t.Errorf("applied: %q", got)
	}
}
