package raftfsm

import (
	"crypto/rand"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// The request for a stream is repeated sooner than it is applied, and before it
// come those of an earlier life of the server. It must not be given up for that.
func TestG22StreamOpensHoweverLateRequestsAreApplied(t *testing.T) {
	for _, late := range []int{1, 3} {
		s := newStream()
		o := opener{stream: s, rand: rand.Reader, again: func() {}, opened: newSignal()}
		births := map[int64]uint32{}
		var queue []int64
		for i := range late {
			queue = append(queue, -int64(i+1)) // of the earlier life
		}
		for range 20 {
			o.request(state.Member{ID: 1})
			queue = append(queue, o.nonce)
			nonce := queue[0]
			queue = queue[1:]
			if births[nonce] == 0 {
				births[nonce] = uint32(len(births) + 1)
			}
			o.told(nonce, births[nonce])
		}
		if s.birthNow() == 0 {
			t.Errorf("requests that are applied %d rounds late: the stream is never opened, %d nonces", late,
				len(births))
		}
	}
}
