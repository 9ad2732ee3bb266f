package clients

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/conn"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/rest"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
	"github.com/zlockd/zlockd/test/wire"
)

// asMany returns the number in an environment variable, or `usual` if the variable is not set.
func asMany(variable string, usual int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return usual
}

// crowdOptions are the options of a server that serves a crowd.
var crowdOptions = options.Options{MaxConns: -1, MaxConnsPerAddr: -1, MaxSessionTimeout: time.Hour,
	HandshakeTimeout: time.Minute}

// crowd holds many connections to one server, which use memory instead of a network, and their sessions.
type crowd struct {
	ln       *pipeListener
	poller   *memPoller
	addr     *net.TCPAddr
	conns    []*memConn
	sessions []wire.Session
}

func newCrowd(n int) *crowd {
	c := &crowd{ln: newPipeListener(), poller: new(memPoller), conns: make([]*memConn, n),
		addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}}
	c.poller.cond.L = &c.poller.mu
	return c
}

// dial opens connection i and sends the first frame on it.
func (c *crowd) dial(i int, hello []byte) {
	m := &memConn{toServer: make(chan []byte, 1), addr: c.addr, poller: c.poller}
	m.toServer <- hello
	c.conns[i] = m
	c.ln.conns <- m
}

// open() opens a session on each connection.
func (c *crowd) open(t *testing.T) {
	t.Helper()
	c.sessions = make([]wire.Session, len(c.conns))
	attach(t, c.sessions, c)
}

// attach distributes the sessions over the servers of the crowds `at`. For a zero session it opens a new one.
// It repeats refused attempts, and returns how many there were.
func attach(t *testing.T, sessions []wire.Session, at ...*crowd) (failed int) {
	t.Helper()
	todo := make([]int, len(sessions))
	for i := range todo {
		todo[i] = i
	}
	for len(todo) > 0 {
		for _, i := range todo {
			hello := wire.NewSession(3_600_000)
			if sessions[i].ID != 0 {
				hello = wire.Attach(sessions[i], 0)
			}
			at[i%len(at)].dial(i, wire.AppendConnectRequest(nil, hello))
		}
		var left []int
		for _, i := range todo {
			frame := at[i%len(at)].conns[i].take(0)
			if frame == nil {
				left = append(left, i)
				continue
			}
			s := must.Get(wire.DecodeSession(frame[4:]))(t)
			was := sessions[i].ID
			must.That(t, s.ID != 0, "session %#x expired: want s.ID != 0", was)
			must.That(t, was == 0 || was == s.ID,
				"session %#x expired: want was == 0 || was == s.ID", was)
			sessions[i] = s
		}
		todo = left
		failed += len(left)
	}
	return failed
}

// ask sends the same frame on each connection and waits for an answer of `size` bytes. If `size` is 0, it
// waits for one frame.
func (c *crowd) ask(frame []byte, size int) {
	for _, m := range c.conns {
		m.send(frame)
	}
	for _, m := range c.conns {
		m.take(size)
	}
}

// client opens one more session, which does not belong to the crowd.
func (c *crowd) client(t *testing.T) *wire.Conn {
	t.Helper()
	w := c.ln.dial(t)
	must.OK(t, w.Connect(wire.NewSession(3_600_000)))
	return w
}

// times are the durations of operations.
type times []time.Duration

func (l times) String() string {
	if len(l) == 0 {
		return "none"
	}
	slices.Sort(l)
	at := func(i int) time.Duration { return l[i].Round(time.Microsecond) }
	n := len(l)
	return fmt.Sprintf("p50 %v, p99 %v, longest %v of %d", at(n/2), at(n*99/100), at(n-1), n)
}

// beside() repeats op() while do() runs, and once more afterwards. It returns how long each op() took.
func beside(do, op func()) (took times) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for last := false; !last; {
			select {
			case <-stop:
				last = true
			default:
			}
			from := time.Now()
			op()
			took = append(took, time.Since(from))
		}
	}()
	do()
	close(stop)
	<-done
	return took
}

// newTrio starts three servers of one cluster with data on disk, each with a crowd of up to n connections.
func newTrio(t *testing.T, n int) (rigs [3]*rig, crowds [3]*crowd) {
	peers := map[uint32]string{}
	var listeners [3]net.Listener
	for i := range listeners {
		listeners[i] = must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		peers[uint32(i+1)] = listeners[i].Addr().String()
	}
	for i := range rigs {
		crowds[i] = newCrowd(n)
		o := crowdOptions
		o.ID = uint32(i + 1)
		rigs[i] = prepare(t, o, crowds[i].ln)
		rigs[i].o = raftfsm.Options{ID: o.ID, Peers: peers, DataDir: t.TempDir(),
			Listen: func(string) (net.Listener, error) { return listeners[i], nil }}
	}
	var wg sync.WaitGroup
	for _, r := range rigs {
		wg.Go(func() { r.start() })
	}
	wg.Wait()
	for i, r := range rigs {
		r.serve()
		r.srv.conns.Resting.Use(crowds[i].poller)
	}
	return rigs, crowds
}

// leaderOf waits for a leader and returns its index.
func leaderOf(t *testing.T, rigs [3]*rig) (lead int) {
	eventually(t, "a leader", func() bool {
		lead = slices.IndexFunc(rigs[:], func(r *rig) bool { return r.node.Status().Role == "leader" })
		return lead >= 0
	})
	return lead
}

// TestWatchesTakeLittle bounds the memory of a watch, both if only one session watches a path and if all
// sessions do. ZLOCKD_WATCHES=10000000 sets the number of watches.
func TestWatchesTakeLittle(t *testing.T) {
	n := asMany("ZLOCKD_WATCHES", 20_000)
	sessions := min(1000, n/200)
	each := n / sessions
	for _, shared := range []bool{false, true} {
		c := newCrowd(sessions)
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			r := newRigOn(t, crowdOptions, c.ln)
			r.srv.conns.Resting.Use(c.poller)
			c.open(t)
			heap, _ := living()
			for at := 0; at < each; {
				end := min(at+500, each)
				for i, m := range c.conns {
					if shared {
						i = 0
					}
					var frames []byte
					for k := at; k < end; k++ {
						frames = append(frames, wire.AppendRequest(nil, int32(k+1), jute.OpExists,
							wire.PathWatch(fmt.Sprintf("/locks/of-%04d/node-%010d", i, k), true))...)
					}
					m.send(frames)
				}
				for _, m := range c.conns {
					must.That(t, m.take((end-at)*(4+jute.ReplyHeaderSize)) != nil, "connection closed")
				}
				at = end
			}
			heap2, _ := living()
			all := r.status().AllWatches
			must.Equal(t, all, each*sessions, "watches")
			size := float64(heap2-heap) / float64(all)
			t.Logf("%d sessions with %d watches each: %.0f MB, %.1f bytes a watch", sessions, each,
				float64(heap2-heap)/1e6, size)
			most := 150 + float64(20_000*sessions)/float64(n) // plus the buffers that each connection keeps
			if size > most && !race.Enabled {
				t.Errorf("a watch takes %.1f bytes", size)
			}
		})
	}
}

// All watchers of one node get the event of its change while other clients write. ZLOCKD_SESSIONS=100000 sets
// the number of watchers.
func TestManyWatchersOfOneNode(t *testing.T) {
	c := newCrowd(asMany("ZLOCKD_SESSIONS", 2000))
	r := newRigOn(t, crowdOptions, c.ln)
	r.srv.conns.Resting.Use(c.poller)
	c.open(t)
	admin, other := c.client(t), c.client(t)
	create(t, admin, "/watched", "", 0)
	create(t, admin, "/other", "", 0)
	look := wire.AppendRequest(nil, 1, jute.OpExists, wire.PathWatch("/watched", true))
	write := func(w *wire.Conn, path string) {
		call(t, w, jute.OK, jute.OpSetData, wire.SetData(path, []byte("new"), -1))
	}
	usual := beside(func() { time.Sleep(300 * time.Millisecond) }, func() { write(other, "/other") })
	for range 3 {
		c.ask(look, 0)
		var told time.Duration
		during := beside(func() {
			from := time.Now()
			write(admin, "/watched")
			for _, m := range c.conns {
				f := must.Get(wire.DecodeFrame(m.take(0)[4:]))(t)
				must.That(t, f.Event != nil, "%+v: want f.Event != nil", f)
				must.Equal(t, f.Event.Path, "/watched", "f.Event.Path")
			}
			told = time.Since(from)
		}, func() { write(other, "/other") })
		t.Logf("%d watchers told in %v; a lone write of another client: %v, beside it %v", len(c.conns),
			told.Round(time.Millisecond), usual, during)
	}
}

// After the leader's death all sessions attach at the remaining servers, no session expires, and another
// client takes locks. ZLOCKD_SESSIONS=100000 sets the number of sessions.
func TestSessionsComeBackAfterTheLeadersDeath(t *testing.T) {
	n := asMany("ZLOCKD_SESSIONS", 2000)
	rigs, crowds := newTrio(t, n)
	lead := leaderOf(t, rigs)
	dead, others := rigs[lead], []int{(lead + 1) % 3, (lead + 2) % 3}
	crowds[lead].open(t)
	sessions := crowds[lead].sessions
	locker := crowds[others[0]].client(t)
	create(t, locker, "/lock", "", 0)
	cycle := func() {
		eventually(t, "a lock is taken", func() bool {
			path, err := locker.Create("/lock/n-", nil, jute.FlagEphemeralSequential)
			if err == nil {
				_, _, err = locker.Children("/lock", false)
			}
			if err == nil {
				err = locker.Delete(path, -1)
			}
			if err == nil {
				return true
			}
			again := crowds[others[0]].ln.dial(t) // try again: the server may have no leader yet
			if again.Connect(wire.NewSession(3_600_000)) == nil {
				locker = again
			}
			return false
		})
	}
	usual := beside(func() { time.Sleep(300 * time.Millisecond) }, cycle)
	dead.srv.CutOff()
	var took, gap time.Duration
	var again int
	during := beside(func() {
		from := time.Now()
		dead.node.Abort()
		leaderOf(t, rigs)
		gap = time.Since(from)
		again = attach(t, sessions, crowds[others[0]], crowds[others[1]])
		took = time.Since(from)
	}, cycle)
	t.Logf("%d sessions attached after %v, the next leader %v, %d attempts failed; lock cycle before %v, "+
		"beside it %v", n, took.Round(time.Millisecond), gap.Round(time.Millisecond), again, usual, during)
	var left int
	rigs[others[1]].node.View(func(st *state.State) { left = st.Sessions().Len() })
	must.That(t, left >= n, "%d sessions left", left)
}

// memConn is the server's end of a connection that consists only of a little memory, so that the test
// measures the server alone. It has no deadlines.
type memConn struct {
	toServer chan []byte
	rest     []byte // bytes of the last frame that the server has not read
	closed   sync.Once
	gone     atomic.Bool // the server has closed the connection
	addr     *net.TCPAddr
	poller   *memPoller
	slot     atomic.Int64 // slot in the poller plus one; 0: the connection is not polled

	mu       sync.Mutex
	toClient []byte
}

func (c *memConn) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		b, open := <-c.toServer
		if !open {
			return 0, net.ErrClosed
		}
		c.rest = b
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// send appends b to the bytes that the server will read.
func (c *memConn) send(b []byte) {
	c.toServer <- b
	c.poller.arrived(c)
}

func (c *memConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.toClient = append(c.toClient, b...)
	c.mu.Unlock()
	return len(b), nil
}

func (c *memConn) Close() error {
	c.closed.Do(func() {
		c.gone.Store(true)
		close(c.toServer)
	})
	return nil
}

func (c *memConn) LocalAddr() net.Addr              { return c.addr }
func (c *memConn) RemoteAddr() net.Addr             { return c.addr }
func (c *memConn) SetDeadline(time.Time) error      { return nil }
func (c *memConn) SetReadDeadline(time.Time) error  { return nil }
func (c *memConn) SetWriteDeadline(time.Time) error { return nil }

// memPoller is a rest.Poller for memConns.
type memPoller struct {
	mu   sync.Mutex
	cond sync.Cond
	list []rest.Arrival // Wait has not returned list[head:] yet
	head int
	done bool
}

func (p *memPoller) arrived(c *memConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slot := c.slot.Load(); slot > 0 && len(c.toServer) > 0 {
		p.list = append(p.list, rest.Arrival{Slot: uint32(slot - 1)})
		p.cond.Signal()
	}
}

func (p *memPoller) Takes(c rest.Sleeper) bool {
	_, ok := c.(*conn.Conn).Out().NC.(*memConn)
	return ok
}

func (p *memPoller) Add(c rest.Sleeper, slot uint32) error {
	m := c.(*conn.Conn).Out().NC.(*memConn)
	m.slot.Store(int64(slot) + 1)
	p.arrived(m)
	return nil
}

func (p *memPoller) Remove(c rest.Sleeper) { c.(*conn.Conn).Out().NC.(*memConn).slot.Store(0) }

func (p *memPoller) Wait(buf []rest.Arrival) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.head == len(p.list) && !p.done {
		p.cond.Wait()
	}
	if p.done {
		return 0, net.ErrClosed
	}
	n = copy(buf, p.list[p.head:])
	if p.head += n; p.head == len(p.list) {
		p.list, p.head = p.list[:0], 0
	}
	return n, nil
}

func (p *memPoller) Read(c rest.Sleeper, b []byte) (n int, err error) {
	m := c.(*conn.Conn).Out().NC.(*memConn)
	select {
	case in, open := <-m.toServer:
		if !open {
			return 0, net.ErrClosed
		}
		n = copy(b, in)
		m.rest = in[n:]
		return n, nil
	default:
		return 0, nil
	}
}

func (p *memPoller) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	p.cond.Broadcast()
}

// take waits for a frame, or for `size` bytes, from the server. It returns nil if the server has closed the
// connection.
func (c *memConn) take(size int) []byte {
	for {
		gone := c.gone.Load()
		c.mu.Lock()
		if n := len(c.toClient); n >= 4 && size == 0 {
			size = 4 + int(binary.BigEndian.Uint32(c.toClient))
		}
		if in := c.toClient; size > 0 && len(in) >= size {
			if c.toClient = in[size:]; len(c.toClient) == 0 {
				c.toClient = nil
			}
			c.mu.Unlock()
			return in[:size]
		}
		c.mu.Unlock()
		if gone {
			return nil
		}
		time.Sleep(10 * time.Microsecond)
	}
}
