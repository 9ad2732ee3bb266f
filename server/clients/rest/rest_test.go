package rest

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// sleeper is a connection as Rest sees it.
type sleeper struct {
	place  Place
	ended  bool
	reads  string      // bytes that a visit reads and cannot answer
	visits func()      // called during a visit
	rose   chan string // receives what Rise was called with
}

func (s *sleeper) Place() *Place        { return &s.place }
func (s *sleeper) Raw() syscall.RawConn { return nil }
func (s *sleeper) IsOpen() bool         { return !s.ended }
func (s *sleeper) Visit(_ Poller, _ bool, buf []byte) (n int, err error) {
	if s.visits != nil {
		s.visits()
	}
	return copy(buf, s.reads), nil
}
func (s *sleeper) Rise(read []byte, err error) { s.rose <- fmt.Sprint(string(read), err) }

// poller reports the arrivals that a test makes.
type poller struct {
	arrives chan uint32
	refuses bool
}

func (p *poller) Takes(Sleeper) bool { return true }
func (p *poller) Add(Sleeper, uint32) error {
	if p.refuses {
		return errors.New("refused")
	}
	return nil
}
func (p *poller) Remove(Sleeper) {}
func (p *poller) Wait(buf []Arrival) (n int, err error) {
	slot, open := <-p.arrives
	if !open {
		return 0, net.ErrClosed
	}
	buf[0] = Arrival{Slot: slot}
	return 1, nil
}
func (p *poller) Read(Sleeper, []byte) (n int, err error) { return 0, nil }
func (p *poller) Close()                                  { close(p.arrives) }

// A connection rests while each visit can answer all that has arrived. If something is left at the end of a
// visit, the connection rises, even if this arrived during the visit. If no poller can report arrivals, the
// connection rises at once.
func TestConnectionsRise(t *testing.T) {
	for name, c := range map[string]struct {
		reads string
		do    func(r *Rest, s *sleeper, arrives func())
		want  string
	}{
		"something to do": {"request", func(_ *Rest, _ *sleeper, arrives func()) { arrives() }, "request<nil>"},
		"its end": {"", func(r *Rest, s *sleeper, arrives func()) {
			arrives()
			arrives() // a second visit, after the first has ended
			s.ended = true
			r.Wake(s)
		}, net.ErrClosed.Error()},
		"its end during a visit": {"", func(r *Rest, s *sleeper, arrives func()) {
			s.visits = func() {
				s.ended = true
				r.Wake(s)
				expect.Equal(t, r.Len(), 1, "at rest during the visit")
			}
			arrives()
		}, net.ErrClosed.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, s := &poller{arrives: make(chan uint32)}, &sleeper{reads: c.reads,
					rose: make(chan string, 2)}
				var r Rest
				r.Start(func(f func()) { go f() })
				r.Use(p)
				must.That(t, r.Takes(s), "it does not rest: want r.Takes(s)")
				must.That(t, r.Park(s), "it does not rest: want r.Park(s)")
				expect.Equal(t, r.Len(), 1, "at rest")
				c.do(&r, s, func() {
					p.arrives <- s.place.slot
					synctest.Wait()
				})
				synctest.Wait()
				must.Equal(t, len(s.rose), 1, "times that it rose")
				expect.Equal(t, <-s.rose, c.want, "it rose with")
				expect.Equal(t, r.Len(), 0, "at rest afterwards")
				r.Stop()
			})
		})
	}
	refused := &sleeper{rose: make(chan string, 1)}
	p := &poller{arrives: make(chan uint32), refuses: true}
	var r Rest
	r.Start(func(f func()) { go f() })
	r.Use(p)
	expect.That(t, !r.Park(refused),
		"it rests, and no arrival wakes it: want !r.Park(refused)")
	expect.Equal(t, r.Len(), 0, "it rests, and no arrival wakes it: r.Len()")
	r.Stop()
	expect.That(t, !r.Park(refused), "it rests at a server that stops")
}

// The slot of a connection that has left is given to another one. When many slots are empty, all slots are
// dropped.
func TestPlacesOfRestingConnections(t *testing.T) {
	a, b, r := new(sleeper), new(sleeper), new(Rest)
	one, ok := r.enter(a)
	two, ok2 := r.enter(b)
	must.That(t, ok, "places %d and %d: want ok", one, two)
	must.That(t, ok2, "places %d and %d: want ok2", one, two)
	must.Equal(t, one, 0, "places %d and %d: one", one, two)
	must.Equal(t, two, 1, "places %d and %d: two", one, two)
	must.That(t, a.place.rests, "places %d and %d: want a.place.rests", one, two)
	must.Equal(t, b.place.slot, 1, "places %d and %d: b.place.slot", one, two)
	expect.Equal[Sleeper](t, r.begin(0), a, "a visit: r.begin(0)")
	expect.That(t, !a.place.rests, "a visit: want !a.place.rests")
	expect.That(t, r.begin(2) == nil, "a visit: want r.begin(2) == nil")
	expect.That(t, !r.take(a), "a connection under a visit has an owner: want !r.take(a)")
	expect.That(t, r.take(b), "a connection under a visit has an owner: want r.take(b)")
	expect.That(t, !r.take(b), "a connection under a visit has an owner: want !r.take(b)")
	expect.That(t, !b.place.rests,
		"a connection under a visit has an owner: want !b.place.rests")
	expect.That(t, r.begin(1) == nil, "its place is empty: want r.begin(1) == nil")
	expect.Equal(t, len(r.free), 1, "its place is empty: len(r.free)")
	again, ok := r.enter(b)
	if expect.That(t, ok, "place %d: want ok", again) {
		expect.Equal(t, again, 1, "place %d: again", again)
		if expect.Equal(t, len(r.free), 0, "place %d: len(r.free)", again) {
			expect.Equal(t, len(r.slots), 2, "place %d: len(r.slots)", again)
		}
	}
	a.place.rests = true // the visit has ended
	for n, want := range map[int]int{fewSlots - 2: fewSlots, fewSlots - 1: 0} {
		r.slots, r.free = nil, nil
		var conns []*sleeper
		for range n + 2 {
			c := new(sleeper)
			_, ok := r.enter(c)
			must.That(t, ok, "no place")
			conns = append(conns, c)
		}
		for _, c := range conns {
			must.That(t, r.take(c), "not there")
		}
		expect.Equal(t, len(r.slots), want, "places after %d", n+2)
	}
	r.Stop()
	_, ok = r.enter(b)
	expect.That(t, !ok, "a place where none rests any more")
}
