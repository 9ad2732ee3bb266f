package raftfsm

import (
	"bufio"
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An acknowledgement counts from the moment at which this server sent what is acknowledged: the leader may be
// gone by the time at which the answer comes (G23).
func TestG23AnAcknowledgementCountsFromTheQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, late := range map[string]time.Duration{"at once": 0, "after five seconds": 5 * time.Second} {
			n := &Node{fsm: newFSM(1, "c", new(watcher), func(error) {})}
			n.serving.n = n
			began := time.Now()
			time.Sleep(3 * time.Second)
			sent := time.Now()
			var b bytes.Buffer
			w := bufio.NewWriter(&b)
			ack := peer.Touches{Number: uint64(sent.Sub(began))}
			must.OK(t, peer.WriteMessage(w, peer.LinkAck, ack.Append(nil)))
			must.OK(t, w.Flush())
			time.Sleep(late)
			expect.Is(t, n.readAcks(bufio.NewReader(&b), began), io.EOF, "%s", name)
			expect.Equal(t, time.Since(n.serving.lastAck), late, "%s: the age of the acknowledgement", name)
		}
	})
}
