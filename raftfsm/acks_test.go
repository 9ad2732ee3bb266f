package raftfsm

import (
	"bufio"
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/serving"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An acknowledgement proves that the leader lived when this server sent the acknowledged message. It proves
// nothing about later times: the leader may be gone when the answer arrives (G23).
func TestG23AnAcknowledgementCountsFromTheQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, late := range map[string]time.Duration{"at once": 0, "after five seconds": 5 * time.Second} {
			n := &Node{fsm: applied.New().FSM, serving: serving.New(serving.Options{})}
			n.serving.Use(nil, n.fsm, nil)
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
			must.OK(t, n.Acknowledged(t.Context(), func(sent time.Time) bool {
				expect.Equal(t, time.Since(sent), late, "%s: the age of the acknowledgement", name)
				return true
			}))
		}
	})
}
