package peer

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// A server that falls silent in the middle of a message is asked whether it
// lives, and waited for if it does; between messages nobody is in a hurry.
func TestR5SilenceWithinAMessage(t *testing.T) {
	for _, lives := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			asked := 0
			c := &raftConn{Conn: here, alive: func() bool { asked++; return lives }}
			go func() {
				time.Sleep(time.Minute)
				there.Write([]byte("begin"))
			}()
			b := make([]byte, 100)
			if n, err := c.Read(b); n != 5 || err != nil {
				t.Fatal(n, err)
			}
			began := time.Now()
			_, err := c.Read(b)
			took := time.Since(began)
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the read ended with %v", err)
			}
			if want := messageSilence; !lives && (took != want || asked != 1) {
				t.Errorf("a server that is gone was waited for for %v, asked %d times", took, asked)
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
	p, err := Open(ctx, Options{ID: 1, Addr: "127.0.0.1:0", Listen: func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }})
	if err != nil {
		t.Fatal(err)
	}
	trans := p.Transport(hclog.NewNullLogger(), func() uint64 { return math.MaxUint64 })
	defer func() { cancel(); p.Close(); trans.(raft.WithClose).Close() }()
	trans.SetHeartbeatHandler(func(raft.RPC) {}) // as raft does
	inner := reflect.ValueOf(trans.(mainLoop).NetworkTransport).Elem()
	if !inner.FieldByName("heartbeatFn").IsNil() {
		t.Error("R1: a heartbeat handler is installed; heartbeats would be answered beside the main loop")
	}
	if got := inner.FieldByName("maxInFlight").Int(); got != 1 {
		t.Errorf("R4: %d RPCs in flight; pipelining is on", got)
	}
	if _, ok := trans.(raft.WithPreVote); !ok {
		t.Error("R23: the wrapper hides pre-vote")
	}
	// An entry of no kind that raft has is a stand-in: the log does not have it.
	standIn := &raft.AppendEntriesRequest{Entries: []*raft.Log{{Index: 7, Term: 1}, {Index: 8, Type: raft.LogConfiguration + 1}}}
	if err := trans.AppendEntries("2", "127.0.0.1:1", standIn, new(raft.AppendEntriesResponse)); err == nil || !strings.Contains(err.Error(), "entry 8 is not in this server's log") {
		t.Errorf("a stand-in is sent: %v", err)
	}
}
