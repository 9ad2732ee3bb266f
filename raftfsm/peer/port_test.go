package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// admitAll is a host that lets every caller in.
type admitAll struct{ Host }

func (admitAll) Greeting(uint32) Greeting       { return Greeting{} }
func (admitAll) Admit(Purpose, *Greeting) error { return nil }
func (admitAll) Answer(context.Context, *Question) (Told, error) {
	return Told{}, nil
}
func (admitAll) Status(*Greeting) Status { return Status{ID: 1} }

// A port keeps a limited number of connections that have sent no greeting. For one more it closes the oldest
// of them, so that they cannot keep a server out.
func TestConnectionsWithoutAGreetingAreBounded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	o := Options{ID: 1, Addr: "127.0.0.1:0", Host: admitAll{}, Dial: dial, Logger: slog.New(slog.DiscardHandler),
		Listen: func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }}
	p := must.Get(Open(ctx, o))(t)
	p.Serve()
	defer func() { cancel(); p.Close() }()
	var silent []net.Conn
	for range 3 * maxNew {
		c := must.Get(net.Dial("tcp", p.Addr()))(t)
		defer c.Close()
		silent = append(silent, c)
	}
	expect.Equal(t, must.Get(p.Ask(ctx, 1, p.Addr(), Question{}))(t).ID, 1, "a server is kept out")
	p.mu.Lock()
	n := len(p.new)
	p.mu.Unlock()
	expect.That(t, n <= maxNew, "%d connections without a greeting", n)
	// The first connections were closed.
	for _, c := range silent[:maxNew] {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		must.OK(t, expect.Err(io.ReadAll(c)), "not closed")
	}
}

// A connection that was accepted while the port closes is not served.
func TestClosedPortTracksNothing(t *testing.T) {
	p := open(t, 1, &host{})
	p.Close()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	expect.That(t, !p.track(here), "a connection counts that came as the port was closed")
}

// New callers cannot push out the connection of a server that was admitted.
func TestStrangersDoNotPushOutServers(t *testing.T) {
	h := &host{links: make(chan uint32, 1)}
	one, two := open(t, 1, h), open(t, 2, &host{})
	link := must.Get(two.Call(t.Context(), Link, 1, one.Addr()))(t)
	defer link.Close()
	<-h.links
	one.mu.Lock()
	defer one.mu.Unlock()
	if expect.Equal(t, len(one.new), 0,
		"%d of %d connections are strangers': len(one.new)", len(one.new), len(one.conns)) {
		expect.Equal(t, len(one.conns), 1,
			"%d of %d connections are strangers': len(one.conns)", len(one.new), len(one.conns))
	}
}

// ownTLS returns the TLS of a cluster whose servers share one certificate.
func ownTLS(t *testing.T, id uint32, more ...string) *TLS {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		DNSNames: append(more, certName(id)), IsCA: true, BasicConstraintsValid: true}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	secret := must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
	cert, private := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, private: {
		Type: "PRIVATE KEY", Bytes: secret}} {
		must.OK(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	secure := must.Get(tlsfiles.Open(tlsfiles.Names{Flag: "peer-tls", Cert: cert, Key: private, CA: cert},
		slog.New(slog.DiscardHandler)))(t)
	return secure
}

// A server talks over TLS only with the server that it means to call, and admits no caller with another
// server's certificate.
func TestTLSNamesTheServer(t *testing.T) {
	p := openTLS(t, 1, &host{}, ownTLS(t, 1))
	st, err := p.Ask(t.Context(), 1, p.Addr(), Question{})
	if expect.OK(t, err, "itself") {
		expect.Equal(t, st.Cluster, "c", "itself: st.Cluster")
	}
	_, err = p.Ask(t.Context(), 2, p.Addr(), Question{})
	if expect.Fails(t, err, "server 1 is taken for server 2") {
		expect.Has(t, err.Error(), "TLS with server 2")
	}
	two := open(t, 2, &host{})
	two.o.TLS = p.o.TLS
	_, err = two.Ask(t.Context(), 1, p.Addr(), Question{})
	if expect.Is(t, err, ErrRefused, "a caller with the certificate of another server") {
		expect.Has(t, err.Error(), "server 2 shows the certificate of zlockd-1")
	}
}

// A certificate with the names of two servers is refused: with it each of these servers could pass for the
// other.
func TestCertificateNamesOneServer(t *testing.T) {
	p := openTLS(t, 1, &host{}, ownTLS(t, 1, certName(2)))
	_, err := p.Ask(t.Context(), 1, p.Addr(), Question{})
	if expect.Is(t, err, ErrRefused) {
		expect.Has(t, err.Error(), "exactly one DNS name")
	}
}

// If a server hangs after the TLS handshake, the caller gives up when its time is over. Otherwise the
// goroutine that calls a leader could not turn to the next leader.
func TestSilenceAfterTheHandshakeIsNotWaitedFor(t *testing.T) {
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer ln.Close()
	secure := ownTLS(t, 1)
	shaken := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			defer c.Close()
			_, _, err = tlsServer(secure, c)
		}
		shaken <- err
		<-t.Context().Done()
	}()
	p := open(t, 2, &host{})
	p.o.TLS = secure
	ctx, cancel := context.WithCancel(t.Context())
	called := make(chan error, 1)
	go func() {
		c, err := p.Call(ctx, Link, 1, ln.Addr().String())
		if err == nil {
			c.Close()
		}
		called <- err
	}()
	must.OK(t, <-shaken)
	cancel() // the caller's time is over, however long the handshake took
	select {
	case err := <-called:
		expect.Fails(t, err, "a call that was not answered")
	case <-time.After(20 * time.Second):
		t.Fatal("the caller goes on waiting")
	}
}

// A server falls silent in the middle of a message. The reader then asks whether that server is alive. If it
// is, the reader waits longer. Between messages it waits without a limit.
func TestR5SilenceWithinAMessage(t *testing.T) {
	for _, lives := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			probes := 0
			c := &asked{Conn: here, alive: func() bool { probes++; return lives }}
			go func() {
				there.Write([]byte("whole"))
				time.Sleep(time.Minute)
				there.Write([]byte("begin"))
			}()
			b := make([]byte, 100)
			c.within = true
			must.Equal(t, must.Get(c.Read(b))(t), 5)
			c.between()
			must.Equal(t, must.Get(c.Read(b))(t), 5)
			c.within = true
			began := time.Now()
			_, err := c.Read(b)
			took := time.Since(began)
			expect.Is(t, err, os.ErrDeadlineExceeded, "the read ended with")
			if lives {
				expect.That(t, took >= messageWait && took <= messageWait+messageSilence,
					"the wait for a server that lives: got %v, want %v to %v", took, messageWait, messageWait+messageSilence)
			} else {
				expect.Equal(t, took, messageSilence, "the wait for a server that is gone")
				expect.Equal(t, probes, 1, "questions to a server that is gone")
			}
			there.Close()
			here.Close()
		})
	}
}

func TestR1R4R23TransportSettings(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	p := must.Get(Open(ctx, Options{ID: 1, Addr: "127.0.0.1:0", Listen: func(addr string) (net.Listener, error) {
		return net.Listen("tcp", addr)
	}}))(t)
	trans := p.Transport(func() uint64 { return math.MaxUint64 })
	defer func() { cancel(); p.Close(); trans.(raft.WithClose).Close() }()
	// Raft sets a handler for heartbeats. The transport must not call it, but pass heartbeats on to raft's
	// main loop.
	trans.SetHeartbeatHandler(func(raft.RPC) { t.Error("R1: a heartbeat is answered beside the main loop") })
	answers := make(chan raft.RPCResponse, 1)
	go p.toRaft(raft.RPC{Command: new(raft.AppendEntriesRequest)}, answers, 2)
	if rpc := <-trans.Consumer(); !isHeartbeat(rpc.Command.(*raft.AppendEntriesRequest)) {
		t.Errorf("R1: the main loop is handed %+v", rpc.Command)
	}
	if _, err := trans.AppendEntriesPipeline("2",
		"127.0.0.1:1"); err != raft.ErrPipelineReplicationNotSupported {
		t.Errorf("R4: pipelining is on: %v", err)
	}
	_, ok := trans.(raft.WithPreVote)
	expect.That(t, ok, "R23: the transport has no pre-vote")
	// In place of an entry that it lacks, the log returns a stand-in of a kind that raft does not know. The
	// transport must not send it.
	standIn := &raft.AppendEntriesRequest{
		Entries: []*raft.Log{{Index: 7, Term: 1}, {Index: 8, Type: raft.LogConfiguration + 1}}}
	err := trans.AppendEntries("2", "127.0.0.1:1", standIn, new(raft.AppendEntriesResponse))
	if expect.Fails(t, err, "a missing entry is sent") {
		expect.Has(t, err.Error(), "entry 8 is not in this server's log")
	}
}

// A follower's raft gets no commit index beyond the entries of a message, whatever the leader sends.
func TestNoCommitIsTakenBeyondAMessage(t *testing.T) {
	p := open(t, 1, &host{})
	for _, test := range []struct {
		req  raft.AppendEntriesRequest
		want uint64
	}{
		{raft.AppendEntriesRequest{LeaderCommitIndex: 9}, 0},
		{raft.AppendEntriesRequest{PrevLogEntry: 5, LeaderCommitIndex: 9}, 5},
		{raft.AppendEntriesRequest{PrevLogEntry: 5, LeaderCommitIndex: 9, Entries: []*raft.Log{
			{Index: 6}, {Index: 7}}}, 7},
		{raft.AppendEntriesRequest{PrevLogEntry: 5, LeaderCommitIndex: 3, Entries: []*raft.Log{{Index: 6}}}, 3},
	} {
		go p.toRaft(raft.RPC{Command: &test.req}, make(chan raft.RPCResponse, 1), 2)
		rpc := <-p.rpcs
		got := rpc.Command.(*raft.AppendEntriesRequest)
		if len(got.Entries) < len(test.req.Entries) { // raft first gets the commit index of earlier entries
			expect.That(t, got.LeaderCommitIndex <= 5, "before the entries raft gets commit index %d, want at most 5",
				got.LeaderCommitIndex)
			rpc.Respond(nil, nil)
			got = (<-p.rpcs).Command.(*raft.AppendEntriesRequest)
		}
		expect.Equal(t, got.LeaderCommitIndex, test.want, "the commit index that raft gets")
	}
}

// Raft gets the commit index of earlier entries before it gets the entries of the message. So clients of the
// earlier entries do not wait until the new entries are stored.
func TestCommitIsTakenBeforeEntriesAreStored(t *testing.T) {
	p := open(t, 1, &host{})
	entries := []*raft.Log{{Index: 6}, {Index: 7}}
	for i, test := range []struct {
		commit uint64
		first  uint64 // the commit index that raft gets before the entries; 0: none
	}{{4, 4}, {4, 0}, {5, 5}, {5, 0}, {9, 0}} {
		answered := make(chan bool)
		go func() {
			req := &raft.AppendEntriesRequest{PrevLogEntry: 5, LeaderCommitIndex: test.commit, Entries: entries}
			_, _, ok := p.toRaft(raft.RPC{Command: req}, make(chan raft.RPCResponse, 1), 2)
			answered <- ok
		}()
		if test.first > 0 {
			rpc := <-p.rpcs
			req := rpc.Command.(*raft.AppendEntriesRequest)
			expect.Equal(t, len(req.Entries), 0, "%d: entries in the first request", i)
			expect.Equal(t, req.PrevLogEntry, 5, "%d: the entry before, in the first request", i)
			expect.Equal(t, req.LeaderCommitIndex, test.first, "%d: commit index of the first request", i)
			rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
		}
		rpc := <-p.rpcs
		req := rpc.Command.(*raft.AppendEntriesRequest)
		if expect.Equal(t, len(req.Entries), 2, "%d: entries in the second request", i) {
			expect.Equal(t, req.LeaderCommitIndex, min(test.commit, 7), "%d: commit index of the second request", i)
		}
		rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
		must.That(t, <-answered, "%d: not answered", i)
	}
}

// A leader of an older term may ask a server to stand for election, because it does not know that its term is
// over. The server refuses. It does not refuse its own request.
func TestR22TimeoutNowOfAnOldTermIsRefused(t *testing.T) {
	p := open(t, 1, &host{term: 7})
	for _, test := range []struct {
		from    uint32
		term    uint64
		refused bool
	}{{2, 6, true}, {2, 7, false}, {2, 8, false}, {1, 6, false}} {
		answered := make(chan string, 1)
		go func() {
			_, why, _ := p.toRaft(raft.RPC{Command: &timeoutNow{Term: test.term}}, make(chan raft.RPCResponse, 1),
				test.from)
			answered <- why
		}()
		select {
		case rpc := <-p.rpcs:
			expect.That(t, !test.refused,
				"raft stands for server %d in term %d, although its term is over", test.from, test.term)
			_, known := rpc.Command.(*raft.TimeoutNowRequest)
			expect.That(t, known, "raft does not know a %T", rpc.Command)
			rpc.Respond(&raft.TimeoutNowResponse{}, nil)
			<-answered
		case why := <-answered:
			expect.That(t, test.refused, "server %d in term %d is refused: %s", test.from, test.term, why)
		}
	}
}
