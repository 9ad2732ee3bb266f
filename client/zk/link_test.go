package zk

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// gated is a connection whose method Write sends the bytes to the channel `began`, and returns what it
// receives from the channel `end`.
type gated struct {
	net.Conn
	began  chan []byte
	end    chan error
	closed atomic.Bool
}

func (g *gated) Write(b []byte) (int, error) {
	g.began <- bytes.Clone(b)
	return len(b), <-g.end
}

func (g *gated) Close() error {
	g.closed.Store(true)
	return g.Conn.Close()
}

// linked() returns a Conn whose connection the test controls. Nothing reads from that connection.
func linked(t *testing.T) (*Conn, *link, *gated) {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	g := &gated{Conn: near, began: make(chan []byte), end: make(chan error)}
	c := &Conn{opt: must.Get(Options{}.withDefaults())(t), watches: watches{once: map[watchKey]*Watch{}}}
	c.link = &link{c: c, conn: g, gone: make(chan struct{})}
	return c, c.link, g
}

// closed() waits until all goroutines are blocked, and then reports whether a channel is closed.
func closed[T any](ch <-chan T) bool {
	synctest.Wait()
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// beside() calls do() in another goroutine, and returns a channel that closes when do() has returned.
func beside(do func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	synctest.Wait()
	return done
}

// While a goroutine writes its request, other goroutines may add theirs. The first goroutine writes those,
// too, but only twice. Then it leaves the rest to another goroutine.
func TestWriterOfOthersRequestsIsRelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, g := linked(t)
		send := func(path string) <-chan struct{} {
			return beside(func() { c.submit(false, &newGet("", path, noWatch).call) })
		}
		written := func(path string) {
			t.Helper()
			b := <-g.began
			must.That(t, bytes.HasSuffix(b, []byte(path+"\x00")), "%q is written, not %s", b, path)
		}
		first := send("/a")
		written("/a")
		must.That(t, closed(send("/b")), "a request waits for the writing of another one")
		g.end <- nil
		written("/b")
		must.That(t, closed(send("/c")), "a request waits for the writing of another one")
		must.That(t, !closed(first), "the first goroutine leaves after one round")
		g.end <- nil
		written("/c")
		must.That(t, closed(first), "the first goroutine writes a third round")
		must.That(t, closed(send("/d")), "a request waits for the writing of another one")
		g.end <- nil
		written("/d")
		g.end <- nil
		synctest.Wait()
		// While no goroutine writes, a caller writes its own request. When it has written twice for others,
		// another goroutine writes the rest.
		first = send("/e")
		written("/e")
		must.That(t, !closed(first), "the request does not wait to be written")
		send("/f")
		g.end <- nil
		written("/f")
		g.end <- nil
		must.That(t, closed(first), "the writer does not return")
		last := send("/g")
		written("/g")
		g.end <- nil
		must.That(t, closed(last), "the writer does not return")
	})
}

// A caller's goroutine may write the requests of other callers, but no large ones. Such a write may wait for
// the server longer than the caller's context allows.
func TestCallerWritesNoLargeRequestOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, g := linked(t)
		send := func(r *call) <-chan struct{} { return beside(func() { c.submit(false, r) }) }
		first := send(&newGet("", "/a", noWatch).call)
		<-g.began
		big := newSet("", SetData{Path: "/b", Data: make([]byte, roomy)})
		must.That(t, closed(send(&big.call)), "a request waits for the writing of another one")
		g.end <- nil
		must.Equal(t, len(<-g.began), len(big.frame), "bytes written")
		expect.That(t, closed(first), "the caller of a small request writes a large one")
		must.That(t, closed(send(&newGet("", "/c", noWatch).call)), "a request waits for a large one")
		g.end <- nil
		<-g.began
		g.end <- nil
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		expect.That(t, !l.writing && len(l.out) == 0, "the output is not written")
	})
}

// unhurried is a context whose method Done returns only when `goOn` is closed. A select that calls Done waits
// until then, even if another of its cases is ready.
type unhurried struct {
	context.Context
	goOn chan struct{}
}

func (u unhurried) Done() <-chan struct{} {
	<-u.goOn
	return u.Context.Done()
}

// Several events may come at once, before the callers of Next begin to wait. Then each of these callers gets
// one event.
func TestEventsReachAllCallersOfNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := linked(t)
		c.life = t.Context()
		s := &Subscription{c: c, more: make(chan struct{}, 1)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, goOn := make(chan error, 3), make(chan struct{})
		for range cap(got) {
			go func() { got <- expect.Err(s.Next(unhurried{ctx, goOn})) }()
		}
		synctest.Wait()
		c.mu.Lock()
		for range cap(got) {
			s.put(Event{Type: EventDataChanged})
		}
		c.mu.Unlock()
		close(goOn)
		for range cap(got) {
			expect.OK(t, <-got)
		}
	})
}

// While more than `roomy` bytes of requests have no answer, a caller leaves its request to another goroutine,
// and does not wait for the write. When the answers have come, callers wait for their writes again.
func TestManyUnansweredBytesAreWrittenBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, g := linked(t)
		send := func(r *call) <-chan struct{} { return beside(func() { c.submit(false, r) }) }
		big, small := newSet("", SetData{Path: "/a", Data: make([]byte, roomy)}), newGet("", "/b", noWatch)
		must.That(t, closed(send(&big.call)), "a large request waits until it is written")
		must.That(t, closed(send(&small.call)), "a request waits until a large one is written")
		must.Equal(t, len(<-g.began), len(big.frame), "bytes written")
		g.end <- nil
		must.Equal(t, len(<-g.began), len(small.frame), "bytes written")
		g.end <- nil
		d := jute.NewDecoder(nil)
		for xid := range int32(2) {
			must.OK(t, l.answer(must.Get(l.match(xid+1, 1))(t), jute.BadVersion, &d))
		}
		_, err := big.Wait(t.Context())
		expect.Is(t, err, ErrBadVersion)
		_, err = small.Wait(t.Context())
		expect.Is(t, err, ErrBadVersion)
		synctest.Wait() // until the goroutine that wrote the requests has ended
		done := send(&newGet("", "/c", noWatch).call)
		<-g.began
		expect.That(t, !closed(done), "a request does not wait to be written, with nothing unanswered")
		g.end <- nil
		must.That(t, closed(done), "the writer does not return")
	})
}

// SendSoon does not wait for the connection, as Send may.
func TestSendSoonDoesNotWaitForTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, g := linked(t)
		for _, soon := range []bool{true, false} {
			p := c.Pipe()
			p.Sync("/")
			send := p.Send
			if soon {
				send = p.SendSoon
			}
			done := beside(send)
			<-g.began
			must.Equal(t, closed(done), soon, "returned before it is written")
			g.end <- nil
			must.That(t, closed(done), "the writer does not return")
			must.That(t, closed(beside(send)), "the requests are sent a second time")
		}
	})
}

// The bytes of a request are counted before its caller gets the answer.
func TestBytesAreCountedBeforeTheyAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, g := linked(t)
		done := beside(func() { c.submit(false, &newGet("", "/a", noWatch).call) })
		expect.Equal(t, len(<-g.began), int(c.opt.Counters.BytesSent.Load()), "bytes sent, of those counted")
		g.end <- nil
		<-done
	})
}

// If a write fails, the connection is closed.
func TestWriteThatFailsEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, g := linked(t)
		done := beside(func() { c.submit(false, &newGet("", "/a", noWatch).call) })
		<-g.began
		must.That(t, !g.closed.Load(), "the connection is closed")
		g.end <- errors.New("no")
		must.That(t, closed(done), "the connection is open: want closed(done)")
		must.That(t, g.closed.Load(), "the connection is open: want g.closed.Load()")
	})
}

// After the largest number, requests are numbered from 1 again, because other numbers have a special meaning.
func TestNumbersOfRequestsBeginAgain(t *testing.T) {
	c, l, _ := linked(t)
	c.xid = math.MaxInt32 - 1
	c.mu.Lock()
	var put []*call
	for range 3 {
		put = append(put, &newGet("", "/", noWatch).call)
		l.put(put[len(put)-1])
	}
	c.mu.Unlock()
	for i, want := range []int32{math.MaxInt32, 1, 2} {
		r := must.Get(l.match(want, 1))(t)
		must.That(t, r == put[i], "the answer to %d is not that of request %d", want, i)
		d := jute.NewDecoder(nil)
		must.OK(t, l.answer(r, jute.NoAuth, &d))
	}
}

// The answer to an identity may come before the answers to earlier requests. Those still come in their order.
func TestAnswerToAnIdentityOvertakes(t *testing.T) {
	c, l, _ := linked(t)
	calls := []*call{&newGet("", "/a", noWatch).call, &newGet("", "/b", noWatch).call,
		authCall(Auth{Scheme: "digest"}), &newGet("", "/c", noWatch).call}
	c.mu.Lock()
	for _, r := range calls {
		l.put(r)
	}
	c.mu.Unlock()
	d := jute.NewDecoder(nil)
	_, err := l.match(2, 1)
	must.Is(t, err, errOrder)
	for left, i := range []int{2, 0, 1, 3} {
		must.Equal(t, c.Pending(), len(calls)-left, "unanswered requests")
		xid := []int32{1, 2, jute.XidAuth, 3}[i]
		r := must.Get(l.match(xid, 1))(t)
		must.That(t, r == calls[i], "the answer to %d is taken for that of another request", xid)
		code := jute.NoAuth
		if r.op == jute.OpAuth {
			code = jute.OK
		}
		must.OK(t, l.answer(r, code, &d))
		<-calls[i].done
	}
	must.Equal(t, c.Pending(), 0, "unanswered requests")
}

// A server answers a read with CONNECTIONLOSS, and the caller leaves before the Conn repeats the read. Then
// the Conn does not repeat it.
func TestReadGivenUpBetweenTwoTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, g := linked(t)
		r := newGet("", "/a", noWatch)
		r.c = c
		for _, leaves := range []bool{false, true} {
			done := beside(func() {
				if leaves {
					time.Sleep(time.Minute) // until the pause before the next try of the read is over
				} else {
					c.submit(false, &r.call)
				}
			})
			<-g.began
			g.end <- nil
			<-done
			c.mu.Lock()
			xid := c.xid
			c.mu.Unlock()
			d := jute.NewDecoder(nil)
			must.OK(t, l.answer(must.Get(l.match(xid, 1))(t), -4, &d))
			must.Equal(t, c.Pending(), 0, "requests between two tries")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.Wait(ended)
		must.Is(t, err, context.Canceled)
		must.That(t, closed(r.Done()), "the read is not over")
		time.Sleep(time.Minute)
		must.Equal(t, c.Pending(), 0, "requests")
	})
}

// No state follows Expired or Closed, even if a connection is made while the session ends.
func TestNoStateFollowsTheLast(t *testing.T) {
	for _, last := range []State{Expired, Closed} {
		var told []State
		c := &Conn{opt: Options{OnState: func(s State) { told = append(told, s) }}}
		for _, s := range []State{Connected, Disconnected, last, Connected, Expired} {
			c.tell(s)
		}
		expect.List(t, told, []State{Connected, Disconnected, last})
	}
}

// A session that is over, or about to be, gets no connection.
func TestNoConnectionForASessionThatIsOver(t *testing.T) {
	for name, end := range map[string]func(c *Conn){
		"closing": func(c *Conn) { c.closing = true }, "over": func(c *Conn) { c.err = ErrSessionExpired },
	} {
		c, l, _ := linked(t)
		c.link = nil
		end(c)
		must.That(t, !c.attach(l), "%s: connected: want !c.attach(l)", name)
		must.That(t, !c.Session().Connected,
			"%s: connected: want !c.Session().Connected", name)
	}
}

// The pause between two tries grows up to the longest one. Each pause differs from its planned length by less
// than a quarter.
func TestPausesGrow(t *testing.T) {
	const first, last = 50 * time.Millisecond, time.Second
	for n, want := range map[int]time.Duration{1: first, 2: 2 * first, 3: 4 * first, 4: 8 * first, 5: 16 * first,
		6: last, 7: last, 15: last, 16: last, 17: last, 100: last, math.MaxInt: last} {
		for range 100 {
			d := backoff(n, first, last)
			must.That(t, d >= want*3/4 && d <= want*5/4, "%v before try %d", d, n)
		}
	}
}

// If a session has been without a connection for its whole timeout, the client takes it for over. It cannot
// tell that of a session that it has not yet connected to.
func TestOutlived(t *testing.T) {
	hourAgo := time.Now().Add(-time.Hour)
	for name, x := range map[string]struct {
		c    *Conn
		want bool
	}{
		"no session":          {&Conn{}, false},
		"not yet resumed":     {&Conn{sid: 7}, false},
		"lost for long":       {&Conn{sid: 7, lost: hourAgo, timeout: time.Second}, true},
		"lost a moment ago":   {&Conn{sid: 7, lost: hourAgo, timeout: 24 * time.Hour}, false},
		"no session any more": {&Conn{lost: hourAgo, timeout: time.Second}, false},
	} {
		expect.Equal(t, x.c.outlived(), x.want, "%s", name)
	}
}
