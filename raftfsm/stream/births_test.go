package stream

import (
	"crypto/rand"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
)

// A server may ask for a birth twice before the first of these requests is applied. Requests of its former
// process may be applied even before them. It keeps its stream in both cases.
func TestG22StreamOpensHoweverLateRequestsAreApplied(t *testing.T) {
	for _, late := range []int{1, 3} {
		s := New()
		births := map[int64]uint32{}
		var queue []int64
		for i := range late {
			queue = append(queue, -int64(i+1)) // a request of the former process
		}
		for range 20 {
			s.Opening(state.Member{ID: 1}, rand.Reader)
			queue = append(queue, s.nonce)
			nonce := queue[0]
			queue = queue[1:]
			if births[nonce] == 0 {
				births[nonce] = uint32(len(births) + 1)
			}
			s.Told(nonce, births[nonce])
		}
		if s.Birth() == 0 {
			t.Errorf("requests that are applied %d rounds late: the stream is never opened, %d nonces", late,
				len(births))
		}
	}
}

// A stream uses only the birth that its own request got. If it loses that birth, it asks for another.
func TestBirthsOfAStream(t *testing.T) {
	for _, c := range []struct {
		name   string
		is     uint32 // the birth that the stream has
		own    bool   // whether the birth was given to the stream's own request
		birth  uint32
		again  bool
		then   uint32
		opened bool
	}{
		{"its first", 0, true, 5, false, 5, true},
		{"another life's first", 0, false, 5, false, 0, false},
		{"told again", 5, true, 5, false, 5, false},
		{"its next", 5, true, 6, false, 6, true},
		{"another life's", 5, false, 6, true, 0, false},
		{"taken away", 5, false, 0, true, 0, false},
		{"taken away by its own number", 5, true, 0, true, 0, false},
		{"taken away, and it had none", 0, true, 0, false, 0, false},
	} {
		s := New()
		s.SetClosed(false)
		bl := s.Opening(state.Member{ID: 3}, rand.Reader)
		expect.Equal(t, bl.Origin, 3, "origin of the request")
		expect.Equal(t, bl.Birth, 0, "birth of the request")
		expect.Equal(t, bl.Count, 1, "requests in the block")
		expect.OK(t, bl.Check())
		nonce := s.nonce
		s.Opening(state.Member{ID: 3}, rand.Reader)
		expect.That(t, nonce != 0, "%s: the request has no nonce", c.name)
		expect.Equal(t, s.nonce, nonce, "%s: nonce of a second request", c.name)
		if s.birth = c.is; !c.own {
			nonce++
		}
		for len(s.Opened) > 0 {
			<-s.Opened
		}
		expect.Equal(t, s.Told(nonce, c.birth), c.again, "%s: it asks again", c.name)
		expect.Equal(t, s.Birth(), c.then, "%s", c.name)
		expect.Equal(t, len(s.Opened) == 1, c.opened, "%s: it is news", c.name)
		expect.Equal(t, s.nonce == 0, c.again, "%s: it asks with another number", c.name)
	}
}
