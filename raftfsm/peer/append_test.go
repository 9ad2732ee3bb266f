package peer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// applied is a state that keeps the content of the entries that raft applies.
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

// The commit index in a message may be higher than the indexes of its entries. The follower may have entries
// of an earlier leader there, and raft must not take them for committed.
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
		must.OK(t, err)
		must.That(t, resp.Success, "the follower refuses the entries after %d: %+v", prev, resp)
	}
	// Raft's leader first reads the length of its log, and then the commit index. So it can send these
	// messages.
	ask(2, 1)
	ask(1, 1, &raft.Log{Index: 2, Term: 1, Data: []byte("both")})          // the message has room for one entry
	ask(2, 1, &raft.Log{Index: 3, Term: 3, Data: []byte("committed")})     // the entry with the commit index
	ask(3, 3, &raft.Log{Index: 4, Term: 3, Data: []byte("committed too")}) // the last entry
	for end := time.Now().Add(20 * time.Second); len(fsm.list()) < 3 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	got := fsm.list()
	if expect.Equal(t, len(got), 3, "applied: len(got)") {
		expect.Equal(t, got[0], "both", "applied: got[0]")
		expect.Equal(t, got[1], "committed", "applied: got[1]")
		expect.Equal(t, got[2], "committed too", "applied: got[2]")
	}
}

// A message to a server that is away does not fail at once. It fails when that server can be reached again,
// or when this server no longer leads. With each failure raft waits longer before it sends again. So a long
// outage must be one failure, not many.
func TestMessageFailsWhenItsServerIsBack(t *testing.T) {
	away := raft.ServerAddress(must.Refused(t))
	h := &host{}
	p := open(t, 1, h)
	m := startTransport(t, p, new(atomic.Bool))
	append := func() <-chan error {
		done := make(chan error, 1)
		go func() {
			var resp raft.AppendEntriesResponse
			req := raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax},
				Term: 3, PrevLogEntry: 7, PrevLogTerm: 2}
			done <- m.AppendEntries(ServerID(2), away, &req, &resp)
		}()
		return done
	}
	install := func() <-chan error {
		done := make(chan error, 1)
		go func() {
			var resp raft.InstallSnapshotResponse
			done <- m.InstallSnapshot(ServerID(2), away, &raft.InstallSnapshotRequest{Term: 3, Size: 5}, &resp,
				strings.NewReader("state"))
		}()
		return done
	}
	for name, c := range map[string]struct {
		send func() <-chan error
		end  func()
	}{
		"the server is back":                {append, func() { p.reach.note(2, nil) }},
		"this one leads no more":            {append, func() { h.replicates.Store(false) }},
		"the server is back for a snapshot": {install, func() { p.reach.note(2, nil) }},
	} {
		h.replicates.Store(true)
		failed := c.send()
		for p.reach.again(2) == nil {
			time.Sleep(time.Millisecond)
		}
		select {
		case err := <-failed:
			t.Fatalf("before %s it failed: %v", name, err)
		case <-time.After(50 * time.Millisecond):
		}
		c.end()
		expect.Fails(t, <-failed, "when %s: no error", name)
		p.reach.note(2, nil)
	}
}

// While raft takes no requests, a port answers "busy" to a heartbeat. If the heartbeat waited, raft would
// take it for a new one, although its leader may be gone by then. Other requests wait for raft.
func TestLateHeartbeatsAreNotHeard(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Nothing reads p.rpcs, as if raft were busy.
	p := &Port{o: Options{Logger: slog.New(slog.DiscardHandler)}, ctx: ctx, rpcs: make(chan raft.RPC)}
	here, there := net.Pipe()
	defer here.Close()
	go p.serveRaft(&asked{Conn: there}, 1)
	c := &raftConn{Conn: here, r: bufio.NewReader(here)}
	var resp raft.AppendEntriesResponse
	why, err := c.exchange(rpcTimeout, &raft.AppendEntriesRequest{Term: 3}, &resp, nil)
	must.OK(t, err)
	must.Equal(t, why, errBusy.Error(), "the answer to a heartbeat")
	answered := make(chan string, 1)
	go func() {
		why, _ := c.exchange(rpcTimeout, &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 2,
			LeaderCommitIndex: 7}, &resp, nil)
		answered <- why
	}()
	time.Sleep(lateHeartbeat + lateHeartbeat/2)
	rpc := <-p.rpcs
	expect.Equal(t, rpc.Command.(*raft.AppendEntriesRequest).PrevLogEntry, 7, "raft is handed")
	rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
	expect.Equal(t, <-answered, "", "why raft refuses")
	expect.That(t, resp.Success, "raft's answer does not come back: %+v", resp)
}

// Refusal distinguishes a server that no longer admits this server from a server that is down.
func TestRefusalIsRemembered(t *testing.T) {
	p := &Port{reach: reach{log: slog.New(slog.DiscardHandler), lost: map[uint32]*outage{}}}
	down := errors.New("connection refused")
	p.reach.note(2, down)
	expect.OK(t, p.Refusal(), "of a server that is down")
	p.reach.note(2, fmt.Errorf("server 2: %w", &Refusal{"for a reason"}))
	expect.Is(t, p.Refusal(), ErrRefused, "of a server that refuses")
	p.reach.note(2, fmt.Errorf("server 2: %w", &Refusal{NotFormed}))
	expect.OK(t, p.Refusal(), "of a server that has lost its data")
	p.reach.note(2, fmt.Errorf("server 2: %w", &Refusal{Starting}))
	expect.Is(t, p.Refusal(), ErrRefused, "of a server that starts")
	p.reach.note(2, nil)
	expect.OK(t, p.Refusal(), "of a server that is reached")
}

var shared [1 << 20]byte // content of all entries

func message(sizes ...int) *raft.AppendEntriesRequest {
	args := new(raft.AppendEntriesRequest)
	for i, n := range sizes {
		args.Entries = append(args.Entries, &raft.Log{Index: uint64(i + 1), Data: shared[:n]})
	}
	return args
}

func TestCutKeepsWhatFits(t *testing.T) {
	for _, c := range []struct {
		sizes       []int
		limit       int
		kept, bytes int
	}{{[]int{10, 10, 10}, 30, 3, 30}, {[]int{10, 10, 11}, 30, 2, 20}, {[]int{100, 1}, 30, 1, 100},
		{[]int{0, 0}, 30, 2, 0}, {nil, 30, 0, 0}} {
		args := message(c.sizes...)
		n := cut(args, c.limit)
		expect.Equal(t, n, c.bytes, "%v within %d: n", c.sizes, c.limit)
		expect.Equal(t, len(args.Entries), c.kept,
			"%v within %d: len(args.Entries)", c.sizes, c.limit)
	}
}

// On a link of 20 Mbit/s, and of 1 Mbit/s, a message soon holds no more than the link moves in rpcTimeout.
// Once the link is fast, messages are full again.
func TestPaceFollowsTheLink(t *testing.T) {
	for _, rate := range []float64{20e6 / 8, 1e6 / 8} {
		p := pace{bytes: map[raft.ServerID]int{}}
		failed, moved := 0, 0
		for range 200 {
			size := cut(message(ofSize(64, 1<<20)...), p.limit("2"))
			took := time.Duration(float64(size) / rate * float64(time.Second))
			var err error
			if took > rpcTimeout {
				took, err = rpcTimeout, errors.New("timeout")
				failed++
			} else {
				moved += size
			}
			p.note("2", size, took, err)
		}
		expect.That(t, failed <= 4, "at %.0f bytes a second %d of 200 messages failed, want at most 4", rate, failed)
		expect.That(t, moved >= 100<<20, "at %.0f bytes a second %d MiB arrived, want 100 or more", rate, moved>>20)
		for range 20 {
			p.note("2", p.limit("2"), time.Millisecond, nil)
		}
		expect.Equal(t, p.limit("2"), paceMost, "bytes of a message on a fast link")
	}
}

func ofSize(n, size int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = size
	}
	return list
}

// After an outage messages are as small as possible. Then they grow until they are full, even if no number of
// entries fills a message exactly.
func TestPaceRisesAfterAnOutage(t *testing.T) {
	for _, entry := range []int{3_000, 10_000, 40_000, 60_000} {
		p := pace{bytes: map[raft.ServerID]int{}}
		for range 10 {
			p.note("2", cut(message(ofSize(64, entry)...), p.limit("2")), time.Millisecond,
				errors.New("connection refused"))
		}
		must.Equal(t, p.limit("2"), paceLeast, "bytes of a message after an outage")
		for range 20 {
			p.note("2", cut(message(ofSize(64, entry)...), p.limit("2")), time.Millisecond, nil)
		}
		expect.Equal(t, p.limit("2"), paceMost, "bytes of a message with entries of %d bytes", entry)
	}
}

// The log has one line when an outage begins, one when it has lasted long, and one when it ends, however
// often the server is called.
func TestReachSaysEachThingOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := reach{log: slog.New(slog.NewTextHandler(&out, nil)), lost: map[uint32]*outage{}}
		refused := errors.New("connection refused")
		r.note(2, nil)
		for range 200 {
			r.note(2, refused)
			time.Sleep(100 * time.Millisecond)
		}
		r.note(2, nil)
		r.note(2, nil)
		r.note(2, refused)
		r.note(2, nil)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		want := []string{`level=INFO msg="a server cannot be reached" peer=2 err="connection refused"`,
			`level=WARN msg="a server still cannot be reached" peer=2 for=10s`,
			`level=INFO msg="a server can be reached again" peer=2 after=20s`,
			`level=INFO msg="a server cannot be reached"`,
			`level=INFO msg="a server can be reached again"`}
		if len(lines) != len(want) {
			t.Fatalf("%d lines:\n%s", len(lines), out.String())
		}
		for i, w := range want {
			expect.Has(t, lines[i], w, "line %d", i+1)
		}
	})
}

// A server on an empty directory refuses raft's messages, and asks others what to do. Other servers take all
// of this for one outage. If the server was down before, its question shows that it is back.
func TestServerThatAsksAndRefusesIsOneOutage(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		by    Purpose
		lines int
	}{
		"it refuses, and asks":             {&Refusal{NotFormed}, Ask, 1},
		"it refused, and its raft calls":   {&Refusal{NotFormed}, Raft, 2},
		"it refused, and its link calls":   {&Refusal{NotFormed}, Link, 2},
		"it was down, and asks":            {errors.New("connection refused"), Ask, 2},
		"it started, and asks":             {&Refusal{Starting}, Ask, 2},
		"it refuses for a reason and asks": {&Refusal{"two servers run with --id 2"}, Ask, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r := reach{log: slog.New(slog.NewTextHandler(&out, nil)), lost: map[uint32]*outage{}}
			for range 2 {
				r.note(2, c.err)
				if c.lines > 1 {
					break
				}
				r.called(2, c.by)
			}
			r.called(2, c.by)
			expect.Equal(t, strings.Count(out.String(), "\n"), c.lines, "lines: %s", &out)
			expect.Equal(t, r.again(2) == nil, c.lines > 1, "it is reached")
		})
	}
}

// The commit index of a message is the lowest of three indexes: raft's commit index, the index of the last
// entry in the message, and the index of the last entry that is durable at the leader.
func TestCommitIndexThatIsSent(t *testing.T) {
	entries := []*raft.Log{{Index: 6}, {Index: 7}, {Index: 8}}
	for _, c := range []struct {
		commit, durable uint64
		entries         []*raft.Log
		want            uint64
	}{
		{3, 100, entries, 3}, {6, 100, entries, 6}, {8, 100, entries, 8}, {9, 100, entries, 8},
		{3, 6, entries, 3}, {6, 6, entries, 6}, {7, 6, entries, 6}, {9, 7, entries, 7},
		{4, 100, nil, 4}, {5, 100, nil, 5}, {6, 100, nil, 5}, {5, 4, nil, 4}, {0, 100, nil, 0},
	} {
		one, two := open(t, 1, &host{}), open(t, 2, &host{})
		follower := one.Transport(func() uint64 { return math.MaxUint64 })
		m := two.Transport(func() uint64 { return c.durable })
		told := make(chan uint64, 1)
		go func() {
			most := uint64(0)
			for rpc := range follower.Consumer() {
				req := rpc.Command.(*raft.AppendEntriesRequest)
				most = max(most, req.LeaderCommitIndex)
				rpc.Respond(&raft.AppendEntriesResponse{Term: req.Term, Success: true}, nil)
				if len(req.Entries) == len(c.entries) {
					told <- most
					return
				}
			}
		}()
		req := raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax},
			Term: 3, PrevLogEntry: 5, PrevLogTerm: 2, Entries: c.entries, LeaderCommitIndex: c.commit}
		was := req.LeaderCommitIndex
		var resp raft.AppendEntriesResponse
		must.OK(t, m.AppendEntries(ServerID(1), raft.ServerAddress(one.Addr()), &req, &resp))
		expect.Equal(t, <-told, c.want, "commit index %d with %d entries of which %d are durable", c.commit,
			len(c.entries), c.durable)
		expect.Equal(t, req.LeaderCommitIndex, was, "raft's own message is changed")
	}
}
