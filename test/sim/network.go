package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Network connects hosts in memory. It behaves like TCP over wires that tests can cut. Bytes that are sent
// over a cut wire arrive after its repair, as retransmission would bring them. Dialling needs a wire that is
// whole in both directions. A host learns that its peer has ended only if the wire from the peer is whole.
// All methods are safe inside a synctest bubble, because none waits with a lock held.
type Network struct {
	mu        sync.Mutex
	rng       *rand.Rand
	latency   time.Duration // of one direction; each message takes up to twice as long, at random
	cut       map[[2]string]bool
	frozen    map[string]bool
	grid      time.Duration           // sent bytes arrive at multiples of this time
	rate      int                     // bytes per second of each wire; 0: no limit
	free      map[[2]string]time.Time // by wire: when it has sent all its bytes
	listeners map[string]*listener    // by address
	pipes     map[*pipe]struct{}
	made      int // number of pipes so far
	calls     map[[2]string]*calls
	trace     *Trace

	// held reports for each write between two hosts whether it stays on the wire until letGo() is called. If
	// so, all later bytes of the pipe stay, too. nil: no write stays.
	held atomic.Pointer[func(p *pipe, b []byte) bool]
}

// NewNetwork returns a network without hosts.
func NewNetwork(rng *rand.Rand, latency time.Duration) *Network {
	return &Network{rng: rng, latency: latency, cut: map[[2]string]bool{}, frozen: map[string]bool{},
		free: map[[2]string]time.Time{}, listeners: map[string]*listener{}, pipes: map[*pipe]struct{}{},
		calls: map[[2]string]*calls{}}
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

// Cut stops everything sent from one host to another.
func (n *Network) Cut(from, to string) {
	n.mu.Lock()
	n.cut[[2]string{from, to}] = true
	n.mu.Unlock()
}

// Mend repairs the wire from one host to another.
func (n *Network) Mend(from, to string) {
	n.mu.Lock()
	delete(n.cut, [2]string{from, to})
	n.mu.Unlock()
	n.wake()
}

// Heal repairs all wires.
func (n *Network) Heal() {
	n.mu.Lock()
	clear(n.cut)
	n.mu.Unlock()
	n.wake()
}

// Throttle bounds the bytes per second of each wire and direction; 0 is no bound.
func (n *Network) Throttle(rate int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rate = rate
	clear(n.free)
}

// carried() returns when bytes sent now have left a throttled wire.
func (n *Network) carried(from, to string, size int) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if n.rate == 0 {
		return now
	}
	wire := [2]string{from, to}
	if n.free[wire].After(now) {
		now = n.free[wire]
	}
	n.free[wire] = now.Add(time.Duration(size) * time.Second / time.Duration(n.rate))
	return n.free[wire]
}

// Freeze lets no bytes in or out of a host, as if all its processes were stopped. Other hosts can still
// connect to the host, but get no answer. The clocks of the host go on.
func (n *Network) Freeze(host string) {
	n.mu.Lock()
	n.frozen[host] = true
	n.mu.Unlock()
}

// Thaw ends Freeze.
func (n *Network) Thaw(host string) {
	n.mu.Lock()
	delete(n.frozen, host)
	n.mu.Unlock()
	n.wake()
}

// wake() makes every waiting reader and writer check again.
func (n *Network) wake() {
	n.mu.Lock()
	pipes := n.all(func(*pipe) bool { return true })
	n.mu.Unlock()
	for _, p := range pipes {
		p.mu.Lock()
		p.wake()
		p.mu.Unlock()
	}
}

// all() lists pipes, the oldest first; the caller holds the lock.
func (n *Network) all(want func(*pipe) bool) (list []*pipe) {
	for p := range n.pipes {
		if want(p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *pipe) int { return cmp.Compare(a.number, b.number) })
	return list
}

// isCut reports whether no bytes pass from one host to the other now.
func (n *Network) isCut(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[[2]string{from, to}] || n.frozen[from] || n.frozen[to]
}

// canDial reports whether a connection can be made now. The other host accepts a connection even if its
// programs are stopped.
func (n *Network) canDial(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.cut[[2]string{from, to}] && !n.cut[[2]string{to, from}] && !n.frozen[from]
}

// onGrid returns the first multiple of `grid` at or after t. If `grid` is 0, it returns t.
func onGrid(t time.Time, grid time.Duration) time.Time {
	if down := t.Truncate(grid); down.Before(t) {
		return down.Add(grid)
	}
	return t
}

func (n *Network) delay() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.latency + time.Duration(n.rng.Int64N(int64(n.latency)+1))
}

// Crash ends every connection of a host, as the end of its process does.
func (n *Network) Crash(host string) {
	n.mu.Lock()
	pipes := n.all(func(p *pipe) bool { return p.from == host || p.to == host })
	var ls []*listener
	for _, l := range n.listeners {
		if hostOf(l.addr) == host {
			ls = append(ls, l)
		}
	}
	n.mu.Unlock()
	for _, l := range ls {
		l.Close()
	}
	for _, p := range pipes {
		p.finish(p.from == host)
	}
}

// calls counts the calls from one host to an address.
type calls struct {
	second  int64
	n, most int // n is the count of the current second; `most` is the largest count of any second
}

func (n *Network) noteCall(from, addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.calls[[2]string{from, addr}]
	if c == nil {
		c = new(calls)
		n.calls[[2]string{from, addr}] = c
	}
	if now := time.Now().Unix(); c.second != now {
		c.second, c.n = now, 0
	}
	c.n++
	c.most = max(c.most, c.n)
}

// Calls returns the highest number of calls within one second, and the host and the address of these calls.
func (n *Network) Calls() (from, addr string, most int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for who, c := range n.calls {
		if c.most > most || c.most == most && who[0]+who[1] < from+addr {
			from, addr, most = who[0], who[1], c.most
		}
	}
	return from, addr, most
}

// ForgetCalls makes Calls consider only later calls.
func (n *Network) ForgetCalls() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.calls)
}

// Listens reports whether a listener is open at an address.
func (n *Network) Listens(addr string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listeners[addr] != nil
}

// Listen opens a listener at "host:port".
func (n *Network) Listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, fmt.Errorf("listen %s: %w", addr, syscall.EADDRINUSE)
	}
	l := &listener{n: n, addr: addr, backlog: make(chan net.Conn, 1024), closed: make(chan struct{})}
	n.listeners[addr] = l
	return l, nil
}

// asHost says that this goroutine runs for a server (0: for none), and returns for which server it ran before.
// Goroutines and timers that it makes afterwards belong to the same server. It does nothing with the plain
// toolchain; see test/sim/overlay.
var asHost = func(uint32) (was uint32) { return 0 }

// Dialer returns a dial function for programs on a host.
func (n *Network) Dialer(from string) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		to := hostOf(addr)
		n.noteCall(from, addr)
		defer asHost(asHost(0))
		wait := time.NewTimer(n.delay() + n.delay())
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !n.canDial(from, to) {
			limit := time.NewTimer(5 * time.Second)
			defer limit.Stop()
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-limit.C:
				return nil, os.ErrDeadlineExceeded
			}
		}
		n.mu.Lock()
		l := n.listeners[addr]
		n.mu.Unlock()
		if l == nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		there, back := n.pipe(from, to), n.pipe(to, from)
		back.conn, back.answers = there.conn, true
		near := &conn{in: back, out: there, local: address(from + ":0"), remote: address(addr)}
		far := &conn{in: there, out: back, local: address(addr), remote: address(from + ":0")}
		select {
		case l.backlog <- far:
			return near, nil
		case <-l.closed:
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
	}
}
