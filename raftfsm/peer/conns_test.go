package peer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// startTransport returns raft's transport on a port. Until the test ends, a goroutine answers each request
// with the request's term. While `refuse` is true, it refuses entries.
func startTransport(t *testing.T, p *Port, refuse *atomic.Bool) *transport {
	t.Helper()
	m := p.Transport(func() uint64 { return math.MaxUint64 }).(*transport)
	t.Cleanup(func() { m.Close() })
	go func() {
		for {
			select {
			case rpc := <-m.Consumer():
				if _, pre := rpc.Command.(*raft.RequestPreVoteRequest); pre {
					rpc.Respond(&raft.RequestPreVoteResponse{Term: 8, Granted: true}, nil)
					continue
				}
				if _, leads := rpc.Command.(*raft.TimeoutNowRequest); leads {
					rpc.Respond(&raft.TimeoutNowResponse{}, nil)
					continue
				}
				req, ok := rpc.Command.(*raft.AppendEntriesRequest)
				if !ok {
					rpc.Respond(&raft.RequestVoteResponse{Term: 9}, nil)
					continue
				}
				var err error
				if refuse.Load() {
					err = errors.New("not today")
				}
				rpc.Respond(&raft.AppendEntriesResponse{
					Term: req.Term, LastLog: req.PrevLogEntry + uint64(len(req.Entries)), Success: true}, err)
			case <-t.Context().Done():
				return
			}
		}
	}()
	return m
}

func (m *transport) appendTo(p *Port, term uint64, entries ...*raft.Log) (raft.AppendEntriesResponse, error) {
	var resp raft.AppendEntriesResponse
	err := m.AppendEntries(ServerID(p.o.ID), raft.ServerAddress(p.Addr()), &raft.AppendEntriesRequest{
		Term: term, Entries: entries}, &resp)
	return resp, err
}

// purposes is a host that counts the connections for raft's messages.
type purposes struct {
	host
	raft atomic.Int32
}

func (h *purposes) Admit(p Purpose, _ *Greeting) error {
	if p == Raft {
		h.raft.Add(1)
	}
	return nil
}

// Consecutive requests of raft reach raft's main loop. They use one connection, even after raft has refused a
// request.
func TestR1AppendsGoToTheMainLoop(t *testing.T) {
	var refuse atomic.Bool
	h := &purposes{}
	one, two := open(t, 1, h), open(t, 2, &host{})
	startTransport(t, one, &refuse)
	m := startTransport(t, two, &refuse)
	for term := uint64(1); term <= 5; term++ {
		resp, err := m.appendTo(one, term, &raft.Log{Index: 1, Data: []byte("x")}, &raft.Log{Index: 2})
		must.OK(t, err)
		must.Equal(t, resp.Term, term, "resp.Term")
		must.Equal(t, resp.LastLog, 2, "resp.LastLog")
		must.That(t, resp.Success, "the entries are refused: %+v", resp)
	}
	expect.Equal(t, h.raft.Load(), 1, "connections")
	refuse.Store(true)
	resp, err := m.appendTo(one, 6)
	if expect.Fails(t, err, "raft refuses a request") {
		expect.Equal(t, err.Error(), "not today", "raft's error")
	}
	expect.Equal(t, resp.Term, 6, "the term that comes with raft's error")
	refuse.Store(false)
	expect.OK(t, expect.Err(m.appendTo(one, 7)), "after an error of raft's")
	expect.Equal(t, h.raft.Load(), 1, "connections after an error of raft's")
	var vote raft.RequestVoteResponse
	err = m.RequestVote(ServerID(1), raft.ServerAddress(one.Addr()), &raft.RequestVoteRequest{}, &vote)
	expect.OK(t, err, "a vote")
	expect.Equal(t, vote.Term, 9, "the term of a vote")
	var pre raft.RequestPreVoteResponse
	err = m.RequestPreVote(ServerID(1), raft.ServerAddress(one.Addr()), &raft.RequestPreVoteRequest{}, &pre)
	if expect.OK(t, err, "a pre-vote") {
		expect.Equal(t, pre.Term, 8, "the term of a pre-vote")
		expect.That(t, pre.Granted, "a granted pre-vote comes as refused")
	}
}

// The host hears of each snapshot that another server has accepted, and does not hear of a refused one.
func TestSnapshotSentIsToldWhenItWasTaken(t *testing.T) {
	h := &host{}
	one, two := open(t, 1, &host{}), open(t, 2, h)
	go func() {
		for _, takes := range []bool{false, true} {
			rpc := <-one.rpcs
			io.Copy(io.Discard, rpc.Reader)
			rpc.Respond(&raft.InstallSnapshotResponse{Success: takes}, nil)
		}
	}()
	m := two.Transport(func() uint64 { return math.MaxUint64 })
	for want := range 2 {
		var resp raft.InstallSnapshotResponse
		must.OK(t, m.InstallSnapshot(ServerID(1), raft.ServerAddress(one.Addr()),
			&raft.InstallSnapshotRequest{Size: 5}, &resp, strings.NewReader("state")))
		must.Equal(t, h.sent, want, "snapshots taken")
	}
}

// When a server restarts, all connections to it break. As soon as a request fails on one of them, the others
// are closed, so that no second request fails.
func TestRestartedServerIsCalledAgain(t *testing.T) {
	var refuse atomic.Bool
	one, two := open(t, 1, &host{}), open(t, 2, &host{})
	startTransport(t, one, &refuse)
	m := startTransport(t, two, &refuse)
	conns := make([]*raftConn, idleConns+1)
	for i := range conns {
		c := must.Get(m.conns.take(1, one.Addr()))(t)
		conns[i] = c
	}
	for _, c := range conns {
		m.conns.done(c, nil)
	}
	expect.Equal(t, len(m.conns.idle[1]), idleConns, "idle connections")
	one.mu.Lock()
	for c := range one.conns {
		c.Close()
	}
	one.mu.Unlock()
	failed := 0
	for {
		_, err := m.appendTo(one, 2)
		if err == nil {
			break
		}
		if failed++; failed > 1 {
			t.Fatal(err)
		}
	}
	expect.Equal(t, failed, 1, "requests that failed")
	expect.Equal(t, len(m.conns.idle[1]), 1, "connections after the failure")
	// A connection to the former address of a server that has moved is not used.
	c := must.Get(m.conns.take(1, one.Addr()))(t)
	c.addr = "where it was"
	m.conns.done(c, nil)
	expect.OK(t, expect.Err(m.appendTo(one, 3)), "a request after a move")
	expect.Equal(t, m.conns.idle[1][0].addr, one.Addr(), "address of the connection after a move")
}

// A request for a vote, or to stand for election, succeeds although the asked server was restarted. If the
// connection leads to the old process, the transport sends the request again on a new connection.
func TestRestartedServerIsAskedForItsVote(t *testing.T) {
	var refuse atomic.Bool
	one, two := open(t, 1, &host{}), open(t, 2, &host{})
	startTransport(t, one, &refuse)
	m := startTransport(t, two, &refuse)
	at := raft.ServerAddress(one.Addr())
	for name, ask := range map[string]func() error{
		"a vote": func() error {
			return m.RequestVote("1", at, &raft.RequestVoteRequest{}, new(raft.RequestVoteResponse))
		},
		"a vote before the vote": func() error {
			return m.RequestPreVote("1", at, &raft.RequestPreVoteRequest{}, new(raft.RequestPreVoteResponse))
		},
		"a wish to lead": func() error {
			return m.TimeoutNow("1", at, &raft.TimeoutNowRequest{}, new(raft.TimeoutNowResponse))
		},
	} {
		_, err := m.appendTo(one, 1)
		must.OK(t, err)
		one.mu.Lock()
		for c := range one.conns {
			c.Close()
		}
		one.mu.Unlock()
		expect.OK(t, ask(), name)
	}
}

// Closing a transport ends the calls that wait for another server's raft.
func TestClosingTheTransportEndsAppends(t *testing.T) {
	var refuse atomic.Bool
	one, two := open(t, 1, &host{}), open(t, 2, &host{})
	m := startTransport(t, two, &refuse)
	ended := make(chan error, 1)
	go func() {
		_, err := m.appendTo(one, 1)
		ended <- err
	}()
	<-one.rpcs // take the request, and never answer it
	m.Close()
	select {
	case err := <-ended:
		expect.Fails(t, err, "an append that nobody answered has succeeded")
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on waiting")
	}
	expect.Fails(t, expect.Err(m.appendTo(one, 1)), "a closed transport appends")
	must.Await(t, "the end of the connection that came too late", 20*time.Second, func() bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		return len(one.conns) == 1 // the one that is left waits for an answer of raft
	})
}

// slowClose is a connection whose Close takes long, as with TLS: Close says goodbye first, and the other
// server reads nothing.
type slowClose struct {
	net.Conn
	closing, closed chan struct{}
}

func (c *slowClose) Close() error {
	close(c.closing)
	<-c.closed
	return nil
}

// A connection that is slow to close does not delay calls to another server. Otherwise a leader would lose
// its leadership.
func TestClosingAConnectionHoldsUpNoOther(t *testing.T) {
	idle := &raftConn{to: 2}
	a := &raftConns{idle: map[uint32]conns{2: {idle}}, busy: map[*raftConn]uint64{}}
	slow := &slowClose{closing: make(chan struct{}), closed: make(chan struct{})}
	defer close(slow.closed)
	go a.done(&raftConn{Conn: slow, to: 1}, errors.New("timeout"))
	<-slow.closing
	taken := make(chan *raftConn, 1)
	go func() {
		c, _ := a.take(2, "")
		taken <- c
	}()
	select {
	case c := <-taken:
		expect.Equal(t, c, idle, "it is another connection")
	case <-time.After(20 * time.Second):
		t.Fatal("the other server is not spoken to")
	}
}

// host is a Host whose answers a test sets.
type host struct {
	admit error
	asked []*Question
	said  error
	links chan uint32
	sent  int // snapshots sent

	replicates atomic.Bool
	term       uint64
}

func (h *host) Greeting(uint32) Greeting {
	return Greeting{Cluster: "c", Incarnation: "i"}
}
func (h *host) Admit(Purpose, *Greeting) error { return h.admit }
func (h *host) ServeLink(c net.Conn, g *Greeting) {
	h.links <- g.From
	io.Copy(io.Discard, c)
}
func (h *host) Answer(_ context.Context, q *Question) (Told, error) {
	h.asked = append(h.asked, q)
	return Told{All: map[uint32]status.Member{7: {Progress: status.Progress{Applied: 70}}}}, h.said
}
func (h *host) Status(*Greeting) Status       { return Status{ID: 1, Cluster: "c"} }
func (h *host) SnapshotSent()                 { h.sent++ }
func (h *host) Stored(uint32, uint64, uint64) {}

func (h *host) Replicates(uint64, uint32, string) bool { return h.replicates.Load() }
func (h *host) HasApplied(_, _ uint64) bool            { return false }
func (h *host) Term() uint64                           { return h.term }
func (h *host) AddrOf(id uint32) string                { return "" }
func (h *host) Instead(id uint32, addr string) string  { return addr }

func open(t *testing.T, id uint32, h Host) *Port {
	t.Helper()
	return openTLS(t, id, h, nil)
}

func openTLS(t *testing.T, id uint32, h Host, secure *TLS) *Port {
	t.Helper()
	p := must.Get(Open(t.Context(), Options{ID: id, Addr: "127.0.0.1:0", Host: h, TLS: secure,
		Logger: slog.New(slog.DiscardHandler),
		Listen: func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) },
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}}))(t)
	p.Serve()
	t.Cleanup(p.Close)
	return p
}

// ended() checks that the other end closes a connection and sends nothing before that.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, err := c.Read(make([]byte, 1))
	expect.Equal(t, n, 0, "bytes before the end of the connection")
	expect.Fails(t, err, "the connection goes on")
	expect.That(t, !errors.Is(err, os.ErrDeadlineExceeded), "the connection does not end: %v", err)
}

// A caller that a host refuses is told the host's reason.
func TestWhoIsRefusedIsToldWhy(t *testing.T) {
	h := &host{admit: errors.New("you are a stranger")}
	one, two := open(t, 1, h), open(t, 2, &host{})
	_, err := two.Call(t.Context(), Ask, 1, one.Addr())
	if expect.Is(t, err, ErrRefused) {
		expect.Has(t, err.Error(), "you are a stranger")
	}
}

// A connection that does not begin with a greeting is closed.
func TestWhatIsNoGreetingIsClosed(t *testing.T) {
	h := &host{links: make(chan uint32, 10)}
	p := open(t, 1, h)
	for _, text := range []string{"L\x00\x00\x00\x02[]", "L\x00\x00\x00\x01{", "L\x7f\x00\x00\x00"} {
		c := must.Get(net.Dial("tcp", p.Addr()))(t)
		defer c.Close()
		c.Write([]byte(text))
		expect.Is(t, readAnswer(c), ErrRefused, "%q", text)
		ended(t, c)
	}
	select {
	case from := <-h.links:
		t.Errorf("server %d was served", from)
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	expect.Equal(t, len(p.conns), 0, "connections kept")
}

func TestQuestionsAreAnswered(t *testing.T) {
	h := &host{}
	one := open(t, 1, h)
	two := open(t, 2, &host{})
	st, err := two.Ask(t.Context(), 1, one.Addr(), Question{Form: &Formation{Cluster: "new"}})
	if expect.OK(t, err) {
		expect.Equal(t, st.ID, 1, "st.ID")
		expect.Equal(t, st.Cluster, "c", "st.Cluster")
	}
	must.Equal(t, len(h.asked), 1, "questions: %+v", h.asked)
	if expect.That(t, h.asked[0].Form != nil, "the question comes without its formation") {
		expect.Equal(t, h.asked[0].Form.Cluster, "new", "the cluster of the question's formation")
	}
	h.said = errors.New("I do not want to")
	st, err = two.Ask(t.Context(), 1, one.Addr(), Question{})
	if expect.Fails(t, err) {
		expect.Has(t, err.Error(), "I do not want to")
		expect.Equal(t, st.ID, 1, "st.ID")
	}
}

// If a server hangs before it answers the greeting, the caller may ask again, as if the server had died.
func TestQuestionToASilentServerMayBeAskedAgain(t *testing.T) {
	silent := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	p := open(t, 2, &host{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := p.Ask(ctx, 1, silent.Addr().String(), Question{})
	expect.Equal(t, status.Of(err), status.Interrupted, "%v", err)
}

func TestCloseEndsEveryConnection(t *testing.T) {
	h := &host{links: make(chan uint32, 1)}
	one, two := open(t, 1, h), open(t, 2, &host{})
	c := must.Get(two.Call(t.Context(), Link, 1, one.Addr()))(t)
	defer c.Close()
	expect.Equal(t, <-h.links, 2, "a link of server")
	done := make(chan struct{})
	go func() { one.Close(); close(done) }()
	ended(t, c)
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("Close does not return")
	}
	if c, err := two.Call(t.Context(), Link, 1, one.Addr()); err == nil {
		c.Close()
		t.Error("a closed port lets others in")
	}
}
