package server

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestTheViewSaysThatThereIsNoNode: until a server has joined its cluster an
// operator's action is refused, not taken for done.
func TestTheViewSaysThatThereIsNoNode(t *testing.T) {
	s := viewSource{new(Instance), new(clients.Server), nil}
	expect.Is(t, s.HandOver(t.Context()), errNotJoined, "HandOver")
	expect.Is(t, s.TakeSnapshot(), errNotJoined, "TakeSnapshot")
	expect.Is(t, expect.Err(s.Do(context.Background(), state.Request{})), errNotJoined, "Do")
	expect.That(t, !s.View(func(*state.State) {}), "there is a state to see")
	expect.That(t, s.backupSource() == nil, "there is a state to back up")
	expect.Is(t, s.ChangeMember(t.Context(), state.MemberChange{Op: "add"}), errNotJoined, "ChangeMember")
	expect.Is(t, expect.Err(s.Probe(t.Context(), 1, "127.0.0.1:1")), errNotJoined, "Probe")
}

// TestStepsOfAReconfigAreNoChangesOfAnOperators: they leave majorities to who
// makes them, and are refused at the admin port.
func TestStepsOfAReconfigAreNoChangesOfAnOperators(t *testing.T) {
	i, _ := start(t, Options{})
	for _, op := range []string{"vote", "demote", "describe"} {
		if err := i.ChangeMember(t.Context(), state.MemberChange{Op: op, ID: 1}); err == nil ||
			!strings.Contains(err.Error(), "unknown change") {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestReadySaysWhatIsWaitedFor: of a server that has not joined its cluster, as its
// log and the other members have it.
func TestReadySaysWhatIsWaitedFor(t *testing.T) {
	free := func() string {
		ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer ln.Close()
		return ln.Addr().String()
	}
	admin := make(chan string, 1)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Start(ctx, Options{
			ID: 1, AdminAddr: "127.0.0.1:0", Raft: raftfsm.Options{DataDir: t.TempDir(), PeerListen: "127.0.0.1:0",
				Peers: map[uint32]string{1: free(), 2: free(), 3: free()}},
			Listen: func(addr string) (net.Listener, error) {
				ln, err := net.Listen("tcp", addr)
				if err == nil {
					admin <- ln.Addr().String()
				}
				return ln, err
			},
		})
		ended <- err
	}()
	addr := <-admin
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		code, text := get(t, "http://"+addr+"/ready")
		if code == 503 && strings.Contains(text, "waiting for server 2 at 127.0.0.1:") &&
			strings.Contains(text, "server 3 at") {
			break
		}
		if time.Now().After(end) {
			t.Errorf("%d %s", code, text)
			break
		}
	}
	stop()
	expect.Fails(t, <-ended, "it has started")
}
