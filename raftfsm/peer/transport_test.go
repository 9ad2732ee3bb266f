package peer

import (
	"context"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server that falls silent in the middle of a message is asked whether it
// lives, and waited for if it does; between messages nobody is in a hurry.
func TestR5SilenceWithinAMessage(t *testing.T) {
	for _, lives := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			probes := 0
			c := &asked{Conn: here, alive: func() bool { probes++; return lives }}
			go func() {
				time.Sleep(time.Minute)
				there.Write([]byte("begin"))
			}()
			b := make([]byte, 100)
			if n, err := c.Read(b); n != 5 || err != nil {
				t.Fatal(n, err)
			}
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
	if _, ok := trans.(raft.WithPreVote); !ok {
		t.Error("R23: the transport has no pre-vote")
	}
	// An entry of no kind that raft has is a stand-in: the log does not have it.
	standIn := &raft.AppendEntriesRequest{
		Entries: []*raft.Log{{Index: 7, Term: 1}, {Index: 8, Type: raft.LogConfiguration + 1}}}
	if err := trans.AppendEntries("2", "127.0.0.1:1", standIn, new(raft.AppendEntriesResponse)); err == nil ||
		!strings.Contains(err.Error(), "entry 8 is not in this server's log") {
		t.Errorf("a stand-in is sent: %v", err)
	}
}

// A follower takes no commit index beyond the entries of the message: it bounds
// what any leader tells it.
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
		if got := (<-p.rpcs).Command.(*raft.AppendEntriesRequest).LeaderCommitIndex; got != test.want {
			t.Errorf("raft is told that %d is committed, beyond what it is shown: %d", got, test.want)
		}
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
			rpc.Respond(&raft.TimeoutNowResponse{}, nil)
			<-answered
		case why := <-answered:
			expect.That(t, test.refused, "server %d in term %d is refused: %s", test.from, test.term, why)
		}
	}
}
