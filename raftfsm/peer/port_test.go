package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
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

// The number of callers that connect and say nothing is limited, and they keep no server out.
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
	// The first callers have given way.
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

// A connection whose server has said its id does not give way to strangers.
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

// ownTLS is that of a cluster whose servers all have the same certificate.
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

// Servers talk over TLS, and each only with the server that it means to call.
func TestTLSNamesTheServer(t *testing.T) {
	p := openTLS(t, 1, &host{}, ownTLS(t, 1))
	st, err := p.Ask(t.Context(), 1, p.Addr(), Question{})
	if expect.OK(t, err, "itself") {
		expect.Equal(t, st.Cluster, "c", "itself: st.Cluster")
	}
	_, err = p.Ask(t.Context(), 2, p.Addr(), Question{})
	expect.That(t, err != nil && strings.Contains(err.Error(), "TLS with server 2"), "as another: %v", err)
	two := open(t, 2, &host{})
	two.o.TLS = p.o.TLS
	_, err = two.Ask(t.Context(), 1, p.Addr(), Question{})
	expect.That(t, errors.Is(err, ErrRefused) &&
		strings.Contains(err.Error(), "server 2 shows the certificate of zlockd-1"),
		"a caller with the certificate of another: %v", err)
}

// A certificate with several names would be that of several servers.
func TestCertificateNamesOneServer(t *testing.T) {
	p := openTLS(t, 1, &host{}, ownTLS(t, 1, certName(2)))
	_, err := p.Ask(t.Context(), 1, p.Addr(), Question{})
	expect.That(t, errors.Is(err, ErrRefused) && strings.Contains(err.Error(), "exactly one DNS name"), "%v", err)
}

// A server that hangs after its handshake must not delay a caller longer than one that hangs before it: the
// goroutine that calls a leader must also find the next leader.
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
	cancel() // however long the machine took for the handshake, the caller's time is over now
	select {
	case err := <-called:
		expect.Fails(t, err, "who did not answer has let us in")
	case <-time.After(20 * time.Second):
		t.Fatal("the caller goes on waiting")
	}
}

// A server that falls silent in the middle of a message is asked whether it
// lives, and waited for if it does; between messages the server is in no hurry.
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
			if want := messageSilence; !lives && (took != want || probes != 1) {
				t.Errorf("a server that is gone was waited for for %v, asked %d times", took, probes)
			}
			if lives && (took < messageWait || took > messageWait+messageSilence) {
				t.Errorf("a server that lives was waited for for %v", took)
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
	// as raft does
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
	// An entry with a kind that raft does not have stands in for one that is not in the log.
	standIn := &raft.AppendEntriesRequest{
		Entries: []*raft.Log{{Index: 7, Term: 1}, {Index: 8, Type: raft.LogConfiguration + 1}}}
	if err := trans.AppendEntries("2", "127.0.0.1:1", standIn, new(raft.AppendEntriesResponse)); err == nil ||
		!strings.Contains(err.Error(), "entry 8 is not in this server's log") {
		t.Errorf("a stand-in is sent: %v", err)
	}
}

// A follower takes no commit index beyond the entries of the message: it bounds what any leader tells it.
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
		if len(got.Entries) < len(test.req.Entries) { // raft is told of the entries before them
			expect.That(t, got.LeaderCommitIndex <= 5, "raft is told that %d is committed, beyond what it is shown: 5",
				got.LeaderCommitIndex)
			rpc.Respond(nil, nil)
			got = (<-p.rpcs).Command.(*raft.AppendEntriesRequest)
		}
		expect.That(t, got.LeaderCommitIndex == test.want,
			"raft is told that %d is committed, beyond what it is shown: %d", got.LeaderCommitIndex, test.want)
	}
}

// Clients that wait for an entry do not wait until the entries after it are stored.
func TestCommitIsTakenBeforeEntriesAreStored(t *testing.T) {
	p := open(t, 1, &host{})
	entries := []*raft.Log{{Index: 6}, {Index: 7}}
	for i, test := range []struct {
		commit uint64
		first  uint64 // what raft is told before it is given the entries; 0: nothing
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
			if expect.Equal(t, len(req.Entries), 0, "%d: len(req.Entries)", i) {
				expect.Equal(t, req.PrevLogEntry, 5, "%d: req.PrevLogEntry", i)
				expect.Equal(t, req.LeaderCommitIndex, test.first, "%d: req.LeaderCommitIndex", i)
			}
			rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
		}
		rpc := <-p.rpcs
		req := rpc.Command.(*raft.AppendEntriesRequest)
		if expect.Equal(t, len(req.Entries), 2, "%d: len(req.Entries)", i) {
			expect.Equal(t, req.LeaderCommitIndex, min(test.commit, 7),
				"%d: req.LeaderCommitIndex", i)
		}
		rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
		must.That(t, <-answered, "%d: not answered", i)
	}
}

// A server that leads in an older term, without knowing of its end, has no other
// server stand for election; this server itself may always do so.
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
