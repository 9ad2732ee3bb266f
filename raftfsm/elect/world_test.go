package elect

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/sim"
)

const heartbeat = time.Second

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// world is one server's raft in virtual time. The other servers give the answers that a test sets. Raft's own
// timers take an hour, so a server stands only by zlockd's decision.
type world struct {
	t      *testing.T
	ctx    context.Context
	net    *sim.Network
	e      *Elections
	own    peer.Status
	others map[uint32]*other
}

// The type other is a server whose raft only answers.
type other struct {
	port  *peer.Port
	trans raft.Transport

	mu     sync.Mutex
	status peer.Status
	slow   time.Duration // the time before the server answers a question
	votes  bool          // the server votes for any candidate
	term   uint64        // the newest term that the server has seen
	told   int           // how often the server was told to stand for election
}

// set() changes the answers of a server while the tested server may ask.
func (o *other) set(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

func host(id uint32) string { return fmt.Sprintf("h%d", id) }

func addr(id uint32) string { return host(id) + ":2888" }

// inWorld runs f on one of several voters, beside servers without a vote. All servers run and know no leader.
func inWorld(t *testing.T, what string, self uint32, voters, nonvoters []uint32, f func(w *world)) {
	t.Run(what, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			w := &world{t: t, ctx: ctx, net: sim.NewNetwork(rand.New(rand.NewPCG(1, 1)), time.Millisecond),
				own: peer.Status{ID: self, Up: true}, others: map[uint32]*other{}}
			var servers []raft.Server
			for _, id := range slices.Concat(voters, nonvoters) {
				s := raft.Server{ID: peer.ServerID(id), Address: raft.ServerAddress(addr(id))}
				if slices.Contains(nonvoters, id) {
					s.Suffrage = raft.Nonvoter
				}
				servers = append(servers, s)
				if id != self {
					o := &other{status: peer.Status{ID: id, Up: true}}
					o.port, o.trans = w.open(id, o)
					go o.answer(ctx)
					w.others[id] = o
				}
			}
			w.begin(self, servers)
			f(w)
			cancel()
			must.OK(t, w.e.Raft.Shutdown().Error())
			w.e.Port.Close()
			for _, o := range w.others {
				o.port.Close()
			}
			time.Sleep(time.Minute)
		})
	})
}

func (w *world) open(id uint32, h peer.Host) (*peer.Port, raft.Transport) {
	p := must.Get(peer.Open(w.ctx, peer.Options{ID: id, Addr: addr(id), SelfAddr: addr(id), Host: h,
		Listen: w.net.Listen, Dial: w.net.Dialer(host(id)), Logger: quiet}))(w.t)
	p.Serve()
	return p, p.Transport(func() uint64 { return math.MaxUint64 })
}

// begin() starts the raft of the tested server.
func (w *world) begin(self uint32, servers []raft.Server) {
	own := &other{status: w.own}
	own.port, own.trans = w.open(self, own)
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = peer.ServerID(self), hclog.NewNullLogger()
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = time.Hour, time.Hour, time.Hour
	store, snaps := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	must.OK(w.t, raft.BootstrapCluster(conf, store, store, snaps, own.trans,
		raft.Configuration{Servers: servers}))
	r := &Raft{ID: self, Self: raft.ServerAddress(addr(self)), Trans: own.trans, Began: time.Now()}
	r.Raft = must.Get(raft.NewRaft(conf, &raft.MockFSM{}, store, store, snaps, own.trans))(w.t)
	w.e = &Elections{Raft: r, Port: own.port, Status: func() peer.Status { return w.own },
		Heartbeat: heartbeat, Log: quiet, News: make(chan struct{}, 1)}
}

// answer() answers the requests of other rafts.
func (o *other) answer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case rpc := <-o.trans.Consumer():
			o.set(func() {
				switch req := rpc.Command.(type) {
				case *raft.RequestVoteRequest:
					o.term = max(o.term, req.Term)
					rpc.Respond(&raft.RequestVoteResponse{Term: o.term, Granted: o.votes}, nil)
				case *raft.AppendEntriesRequest:
					last := req.PrevLogEntry + uint64(len(req.Entries))
					rpc.Respond(&raft.AppendEntriesResponse{Term: req.Term, LastLog: last, Success: true}, nil)
				case *raft.TimeoutNowRequest:
					o.told++
					rpc.Respond(&raft.TimeoutNowResponse{}, nil)
				}
			})
		}
	}
}

// leads() makes the tested server hear of a leader in a term.
func (w *world) leads(id uint32, term uint64) {
	w.t.Helper()
	from := peer.ServerID(id)
	req := &raft.AppendEntriesRequest{Term: term,
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax,
			ID: []byte(from), Addr: []byte(addr(id))}}
	var resp raft.AppendEntriesResponse
	must.OK(w.t, w.others[id].trans.AppendEntries(peer.ServerID(w.e.Raft.ID), w.e.Raft.Self, req, &resp))
	now, _ := w.e.Raft.Known()
	must.That(w.t, resp.Success, "the message of leader %d in term %d is refused: %+v", id, term, resp)
	must.Equal(w.t, now, id, "the leader that the server knows")
}

// elected() makes the tested server lead.
func (w *world) elected() {
	w.t.Helper()
	for _, o := range w.others {
		o.set(func() { o.votes = true })
	}
	must.OK(w.t, w.e.Raft.Stand())
	for end := time.Now().Add(time.Minute); w.e.Raft.State() != raft.Leader; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatal("it is not elected")
		}
	}
}

// stands() returns the time until the tested server stands for election. It returns 0 if the server does not
// stand within limit.
func (w *world) stands(limit time.Duration) time.Duration {
	for began := time.Now(); time.Since(began) < limit; time.Sleep(time.Millisecond) {
		if w.e.Raft.State() == raft.Candidate {
			took := max(time.Since(began), 1)
			synctest.Wait() // wait until its term begins, a moment after raft has become a candidate
			return took
		}
	}
	return 0
}

// until() checks that the tested server stands after d or slightly later. If d is 0, until checks that the
// server does not stand.
func (w *world) until(d time.Duration) {
	w.t.Helper()
	got := w.stands(20 * heartbeat)
	if d == 0 {
		expect.Equal(w.t, got, 0, "it does not stand; it stands after")
		return
	}
	expect.That(w.t, got >= d && got <= d+60*time.Millisecond, "it stands after %v, want %v to 60 ms more",
		got, d)
}

// These methods make the type other a peer.Host.

func (o *other) Greeting(uint32) peer.Greeting            { return peer.Greeting{} }
func (o *other) Admit(peer.Purpose, *peer.Greeting) error { return nil }
func (o *other) ServeLink(net.Conn, *peer.Greeting)       {}
func (o *other) SnapshotSent()                            {}
func (o *other) Stored(uint32, uint64, uint64)            {}
func (o *other) Replicates(uint64, uint32, string) bool   { return false }
func (o *other) HasApplied(uint64, uint64) bool           { return false }
func (o *other) Term() uint64                             { return 0 }
func (o *other) AddrOf(uint32) string                     { return "" }
func (o *other) Instead(_ uint32, addr string) string     { return addr }
func (o *other) Answer(context.Context, *peer.Question) (peer.Told, error) {
	time.Sleep(o.delay())
	return peer.Told{}, nil
}

func (o *other) Status(*peer.Greeting) peer.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.status
}

func (o *other) delay() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.slow
}
