package peer

import (
	"context"
	"errors"
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

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// pipes are a network without sockets, for tests whose clock jumps.
type pipes map[string]*pipeListener

type pipeListener struct {
	addr    string
	callers chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.callers:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return l }
func (*pipeListener) Network() string  { return "pipe" }
func (l *pipeListener) String() string { return l.addr }

func (n pipes) listen(addr string) (net.Listener, error) {
	n[addr] = &pipeListener{addr: addr, callers: make(chan net.Conn), closed: make(chan struct{})}
	return n[addr], nil
}

func (n pipes) dial(ctx context.Context, addr string) (net.Conn, error) {
	l := n[addr]
	if l == nil {
		return nil, errors.New("no server at " + addr)
	}
	here, there := net.Pipe()
	select {
	case l.callers <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n pipes) open(t *testing.T, id uint32, addr string, h Host) *Port {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := must.Get(Open(ctx, Options{ID: id, Addr: addr, Host: h, Listen: n.listen, Dial: n.dial,
		Logger: slog.New(slog.DiscardHandler)}))(t)
	p.Serve()
	t.Cleanup(func() { cancel(); p.Close() })
	return p
}

// A called server waits a limited time for the greeting, and a caller for the answer. After that a connection
// may be silent for any time.
func TestOnlyGreetingsAreInAHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipes{}
		h := &host{links: make(chan uint32, 1)}
		n.open(t, 1, "one", h)
		two := n.open(t, 2, "two", &host{})
		began := time.Now()
		stranger := must.Get(n.dial(t.Context(), "one"))(t)
		defer stranger.Close()
		io.Copy(io.Discard, stranger)
		expect.Equal(t, time.Since(began), greetTime, "a stranger keeps its connection")

		must.Get(n.listen("silent"))(t)
		go func() {
			c, _ := n["silent"].Accept()
			io.Copy(io.Discard, c)
		}()
		began = time.Now()
		expect.Fails(t, expect.Err(two.Call(t.Context(), Link, 1, "silent")), "a server that does not answer")
		expect.Equal(t, time.Since(began), greetTime, "the caller waits")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		link := must.Get(two.Call(ctx, Link, 1, "one"))(t)
		defer link.Close()
		cancel()
		expect.Equal(t, <-h.links, 2, "a link of server")
		time.Sleep(time.Hour)
		must.OK(t, expect.Err(link.Write([]byte("still here"))), "after an hour")
	})
}

// slowHost answers after some time.
type slowHost struct {
	host
	takes time.Duration
	limit atomic.Int64 // the time that Answer had, as a time.Duration
}

func (h *slowHost) Answer(ctx context.Context, _ *Question) (Told, error) {
	end, _ := ctx.Deadline()
	h.limit.Store(int64(time.Until(end)))
	select {
	case <-time.After(h.takes):
		return Told{}, nil
	case <-ctx.Done():
		return Told{}, ctx.Err()
	}
}

func TestQuestionsAreWaitedForNoLongerThanAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipes{}
		h := &slowHost{takes: AnswerTime - time.Second}
		one, two := n.open(t, 1, "one", h), n.open(t, 2, "two", &host{})
		var called net.Conn
		two.o.Dial = func(ctx context.Context, addr string) (c net.Conn, err error) {
			called, err = n.dial(ctx, addr)
			return called, err
		}
		must.OK(t, expect.Err(two.Ask(t.Context(), 1, "one", Question{})), "an answer that takes long")
		expect.Is(t, expect.Err(called.Read(make([]byte, 1))), io.ErrClosedPipe, "the asker's end stays open")

		h.takes = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		_, err := two.Ask(ctx, 1, "one", Question{})
		expect.Equal(t, status.Of(err), status.Interrupted, "%v", err)
		expect.Equal(t, time.Since(began), 3*time.Second, "asked for")
		expect.Equal(t, time.Duration(h.limit.Load()), AnswerTime, "the other server has")

		// If an admitted server asks nothing, the port closes the connection.
		began = time.Now()
		c := must.Get(two.Call(t.Context(), Ask, 1, "one"))(t)
		defer c.Close()
		expect.Equal(t, len(must.Get(io.ReadAll(c))(t)), 0, "bytes answered to no question")
		expect.Equal(t, time.Since(began), greetTime, "a question is awaited for")

		// Closing the port ends the work on its connections.
		began = time.Now()
		ended := make(chan time.Duration, 1)
		go func() {
			_, err := two.Ask(context.Background(), 1, "one", Question{})
			expect.Equal(t, status.Of(err), status.Interrupted, "%v", err)
			ended <- time.Since(began)
		}()
		time.Sleep(time.Second)
		one.Close()
		expect.Equal(t, <-ended, time.Second, "the asker waits beyond the end of the port")
	})
}

// AskAll passes on each server's answer or error, and then ends.
func TestAllAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipes{}
		n.open(t, 1, "one", &host{})
		n.open(t, 2, "two", &host{admit: errors.New("you are a stranger")})
		three := n.open(t, 3, "three", &host{})
		got := map[Place]Answer{}
		for a := range three.AskAll(t.Context(), []Place{{1, "one"}, {2, "two"}, {4, "nowhere"}}, Question{}) {
			got[a.Place] = a
		}
		must.Equal(t, len(got), 3, "answers")
		one := got[Place{1, "one"}]
		expect.OK(t, one.Err, "of a server that runs")
		expect.Equal(t, one.Status.Cluster, "c", "the cluster of a server that runs")
		expect.Is(t, got[Place{2, "two"}].Err, ErrRefused, "of a server that refuses")
		expect.Has(t, got[Place{4, "nowhere"}].Err.Error(), "no server", "of a server that is down")
	})
}

// Requests of a server's raft to itself need no connection.
func TestRaftAsksItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p := must.Get(Open(ctx, Options{ID: 1, Addr: "one", Host: &host{term: 9}, Listen: pipes{}.listen,
			Logger: slog.New(slog.DiscardHandler)}))(t)
		defer p.Close()
		m := p.Transport(func() uint64 { return math.MaxUint64 }).(*transport)
		answer := func(resp any, err error) { rpc := <-m.Consumer(); rpc.Respond(resp, err) }
		vote := func() (resp raft.RequestVoteResponse, err error) {
			err = m.RequestVote("1", "one", &raft.RequestVoteRequest{Term: 5}, &resp)
			return resp, err
		}
		go answer(&raft.RequestVoteResponse{Term: 5, Granted: true}, nil)
		got := must.Get(vote())(t)
		expect.Equal(t, got.Term, 5, "term of the vote")
		expect.That(t, got.Granted, "a granted vote comes as refused")
		go answer(nil, errors.New("not today"))
		_, err := vote()
		if expect.Fails(t, err, "raft refuses") {
			expect.Equal(t, err.Error(), "this server's raft: not today")
		}
		go answer(&raft.TimeoutNowResponse{}, nil)
		expect.OK(t, m.TimeoutNow("1", "one", &raft.TimeoutNowRequest{}, new(raft.TimeoutNowResponse)),
			"a request to stand")
		began := time.Now()
		expect.Is(t, expect.Err(vote()), errBusy, "raft says nothing")
		expect.Equal(t, time.Since(began), rpcTimeout, "the wait for raft")
		cancel()
		expect.Is(t, expect.Err(vote()), raft.ErrTransportShutdown, "at the end of the port")
	})
}

// The type `ahead` is a host that has applied everything of its term.
type ahead struct{ host }

func (h *ahead) HasApplied(term, _ uint64) bool { return term == h.term }

// A server that has already applied a snapshot reads the snapshot to its end and answers that it has taken
// it. Raft does not get the snapshot, because raft would set the state back to it.
func TestSnapshotThatIsAppliedAlreadyIsNotInstalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipes{}
		h := &ahead{host{term: 4}}
		one, two := n.open(t, 1, "one", h), n.open(t, 2, "two", &host{})
		m := two.Transport(func() uint64 { return math.MaxUint64 })
		for range 2 { // twice, over one connection
			var resp raft.InstallSnapshotResponse
			must.OK(t, m.InstallSnapshot("1", "one", &raft.InstallSnapshotRequest{Term: 4, Size: 5}, &resp,
				strings.NewReader("state")))
			expect.Equal(t, resp.Term, 4, "term of the answer")
			expect.That(t, resp.Success, "the snapshot is refused")
		}
		one.mu.Lock()
		expect.Equal(t, len(one.conns), 1, "connections")
		one.mu.Unlock()
	})
}

// Clients choose the bytes in a snapshot. The rest of a snapshot that raft does not read must not count as a
// request: the connection is closed.
func TestRestOfASnapshotIsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipes{}
		one, two := n.open(t, 1, "one", &host{}), n.open(t, 2, "two", &host{})
		m := two.Transport(func() uint64 { return math.MaxUint64 })
		go func() {
			rpc := <-one.rpcs
			io.ReadFull(rpc.Reader, make([]byte, 1))
			rpc.Respond(nil, errors.New("not today"))
		}()
		evil := "x" + string(appendRequest(nil, &raft.RequestVoteRequest{Term: 1 << 60}))
		var resp raft.InstallSnapshotResponse
		err := m.InstallSnapshot("1", "one", &raft.InstallSnapshotRequest{Size: int64(len(evil))}, &resp,
			strings.NewReader(evil))
		must.Fails(t, err)
		must.Equal(t, err.Error(), "not today")
		synctest.Wait()
		select {
		case rpc := <-one.rpcs:
			t.Errorf("raft is asked: %+v", rpc.Command)
		default:
		}
		one.mu.Lock()
		expect.Equal(t, len(one.conns), 0, "connections left")
		one.mu.Unlock()
	})
}

// A damaged message ends its connection and does not reach raft.
func TestDamagedRequestEndsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipes{}
		one, two := n.open(t, 1, "one", &host{}), n.open(t, 2, "two", &host{})
		c := must.Get(two.Call(t.Context(), Raft, 1, "one"))(t)
		defer c.Close()
		b := appendRequest(nil, &raft.RequestVoteRequest{Term: 3})
		b[len(b)-1] ^= 1
		must.OK(t, expect.Err(c.Write(b)))
		go func() {
			for rpc := range one.rpcs {
				t.Errorf("raft is asked: %+v", rpc.Command)
				return
			}
		}()
		expect.Equal(t, len(must.Get(io.ReadAll(c))(t)), 0, "bytes of an answer")
		close(one.rpcs)
	})
}

// reachable is a host that knows addresses.
type reachable struct {
	host
	addr map[uint32]string
}

func (h *reachable) AddrOf(id uint32) string { return h.addr[id] }

// A server counts as gone if it does not answer at its address. A server whose address is not known counts as
// alive.
func TestSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipes{}
		p := n.open(t, 1, "one", &reachable{addr: map[uint32]string{2: "two", 3: "nowhere", 4: "four"}})
		n.open(t, 2, "two", &host{})
		n.open(t, 4, "four", &slowHost{takes: time.Hour})
		expect.That(t, p.alive(2), "a server that answers is gone")
		expect.That(t, !p.alive(3), "a server that is down lives")
		began := time.Now()
		expect.That(t, !p.alive(4), "a server that does not answer lives")
		expect.Equal(t, time.Since(began), messageProbe, "the wait for an answer")
		expect.That(t, p.alive(5), "a server without an address is gone")
	})
}

// A port shows how much of a snapshot has been sent, until the transfer ends.
func TestSnapshotOnItsWay(t *testing.T) {
	p := &Port{}
	r, done := p.sent.begin(2, 10, strings.NewReader("0123456789"))
	must.OK(t, expect.Err(r.Read(make([]byte, 4))))
	sent, size := p.Sending(2)
	expect.Equal(t, sent, 4, "bytes sent")
	expect.Equal(t, size, 10, "bytes of the snapshot")
	done()
	sent, size = p.Sending(2)
	expect.Equal(t, sent, 0, "bytes sent, after the transfer")
	expect.Equal(t, size, 0, "bytes of the snapshot, after the transfer")
}

// The type `nothing` is a state that ignores the log.
type nothing struct{ raft.FSM }

func (nothing) Apply(*raft.Log) any { return nil }

// A vote belongs to a server, not to an address. Server 1 has voted for server 3. Then server 2 starts at the
// address of server 3, and asks for the vote of the same term.
func TestR7VoteIsOfAServerNotOfAnAddress(t *testing.T) {
	one := open(t, 1, &host{term: 1})
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = "1", hclog.NewNullLogger()
	store := raft.NewInmemStore()
	r := must.Get(raft.NewRaft(conf, nothing{}, store, store, raft.NewInmemSnapshotStore(),
		one.Transport(func() uint64 { return math.MaxUint64 })))(t)
	defer func() { expect.OK(t, r.Shutdown().Error()) }()
	at := raft.ServerAddress(one.Addr())
	ask := func(id uint32, addr string) bool {
		m := open(t, id, &host{}).Transport(func() uint64 { return math.MaxUint64 })
		head := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(ServerID(id)), Addr: []byte(addr)}
		var resp raft.RequestVoteResponse
		must.OK(t, m.RequestVote("1", at, &raft.RequestVoteRequest{RPCHeader: head, Term: 5, LeadershipTransfer: true},
			&resp))
		return resp.Granted
	}
	must.That(t, ask(3, "X"), "server 3 does not get the vote")
	expect.That(t, ask(3, "X"), "server 3 does not get its vote again")
	expect.That(t, !ask(2, "X"), "server 2 has the vote of server 3")
	expect.That(t, !ask(3, "Y"), "a vote is given twice")
	stored := must.Get(store.Get([]byte("LastVoteCand")))(t)
	expect.Equal(t, string(stored), "X\x003")
	expect.Equal(t, (&transport{}).DecodePeer(stored), "X")
	// A vote that the previous release stored with only an address is not granted again.
	must.OK(t, store.Set([]byte("LastVoteCand"), []byte("X")))
	expect.That(t, !ask(3, "X"), "server 3 has the vote of an address")
	expect.That(t, !ask(2, "X"), "server 2 has the vote of an address")
}
