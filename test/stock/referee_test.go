//go:build stock

package stock

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// referee judges mutual exclusion from outside the clients. Every contender
// holds one TCP connection to it and says, one line each:
//
//	enter KEY MODE [LIMIT]   mode x: alone; r: with other readers; w: alone;
//	                         s: with at most LIMIT together
//	fence KEY TOKEN          the number of the hold: larger than all before
//	leave KEY
//	cut                      drop the relay's connections
//	refuse MS                drop them and accept none for that long
//
// and is answered "ok" or "violation …". A contender whose connection ends inside a critical section has left
// it, because its process has ended or is about to end.
type referee struct {
	l net.Listener

	mu         sync.Mutex
	relay      *relay // nil: the referee refuses to cut
	keys       map[string]*critical
	violations []string
}

// critical is one critical section.
type critical struct {
	inside  map[net.Conn]string // mode of each holder
	entries int
	most    int // the largest number of holders at once
	fenced  int
	token   int64 // the last token
}

func startReferee(t *testing.T) *referee {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	r := &referee{l: l, keys: map[string]*critical{}}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c)
		}
	}()
	return r
}

func (r *referee) addr() string { return r.l.Addr().String() }

func (r *referee) serve(c net.Conn) {
	defer c.Close()
	defer r.gone(c)
	in := bufio.NewScanner(c)
	for in.Scan() {
		if _, err := io.WriteString(c, r.command(c, strings.Fields(in.Text()))+"\n"); err != nil {
			return
		}
	}
}

func (r *referee) command(c net.Conn, w []string) string {
	switch {
	case len(w) >= 3 && w[0] == "enter":
		limit := 1
		if len(w) > 3 {
			limit, _ = strconv.Atoi(w[3])
		}
		return r.enter(c, w[1], w[2], limit)
	case len(w) == 3 && w[0] == "fence":
		token, err := strconv.ParseInt(w[2], 10, 64)
		if err != nil {
			return "error: " + err.Error()
		}
		return r.fence(c, w[1], token)
	case len(w) == 2 && w[0] == "leave":
		return r.leave(c, w[1])
	case len(w) == 1 && w[0] == "cut" && r.relay != nil:
		r.relay.refuse(0)
		return "ok"
	case len(w) == 2 && w[0] == "refuse" && r.relay != nil:
		ms, _ := strconv.Atoi(w[1])
		r.relay.refuse(time.Duration(ms) * time.Millisecond)
		return "ok"
	}
	return "error: not understood: " + strings.Join(w, " ")
}

func (r *referee) enter(c net.Conn, key, mode string, limit int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.keys[key]
	if k == nil {
		k = &critical{inside: map[net.Conn]string{}}
		r.keys[key] = k
	}
	verdict := "ok"
	for _, m := range k.inside {
		compatible := mode == m && (mode == "r" || mode == "s" && len(k.inside) < limit)
		if !compatible {
			verdict = fmt.Sprintf("violation: %s entered by %s beside %s (%d inside)", key, mode, m, len(k.inside))
			r.violations = append(r.violations, verdict)
			break
		}
	}
	k.inside[c] = mode
	k.entries++
	k.most = max(k.most, len(k.inside))
	return verdict
}

func (r *referee) fence(c net.Conn, key string, token int64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict := "ok"
	k := r.keys[key]
	switch {
	case k == nil || k.inside[c] == "":
		verdict = "violation: a token of somebody who is not inside: " + key
	case token <= k.token:
		verdict = fmt.Sprintf("violation: %s: token %d after %d", key, token, k.token)
	}
	if verdict != "ok" {
		r.violations = append(r.violations, verdict)
		return verdict
	}
	k.token = token
	k.fenced++
	return verdict
}

func (r *referee) leave(c net.Conn, key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.keys[key]
	if k == nil || k.inside[c] == "" {
		r.violations = append(r.violations, "left without having entered: "+key)
		return "error: not inside " + key
	}
	delete(k.inside, c)
	return "ok"
}

func (r *referee) gone(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.keys {
		delete(k.inside, c)
	}
}

// judge() reports what the referee saw, as a subtest. The contenders must have entered at least `keys`
// critical sections.
func (r *referee) judge(t *testing.T, keys int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Run("referee", func(t *testing.T) {
		for _, v := range r.violations {
			t.Error(v)
		}
		expect.That(t, len(r.keys) >= keys,
			"%d critical sections were entered, %d expected", len(r.keys), keys)
		for key, k := range r.keys {
			t.Logf("%-24s %5d entries, at most %d inside at once, %d tokens in order", key, k.entries, k.most,
				k.fenced)
		}
	})
}

// relay passes TCP connections on to a server and can cut them.
type relay struct {
	l       net.Listener
	targets []string

	mu    sync.Mutex
	next  int
	until time.Time // the relay refuses connections until then
	conns map[net.Conn]bool
}

// startRelay returns a relay to the given servers, which it uses in turn.
func startRelay(t *testing.T, targets []string) *relay {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	y := &relay{l: l, targets: targets, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { l.Close(); y.refuse(time.Hour) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go y.pass(c)
		}
	}()
	return y
}

func (y *relay) addr() string { return y.l.Addr().String() }

// refuse() drops all connections and closes new ones for the given time.
func (y *relay) refuse(d time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.until = time.Now().Add(d)
	for c := range y.conns {
		c.Close()
	}
}

// admit() registers a connection and returns the server for it.
func (y *relay) admit(c net.Conn) (target string, ok bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if time.Now().Before(y.until) {
		return "", false
	}
	y.conns[c] = true
	y.next++
	return y.targets[y.next%len(y.targets)], true
}

func (y *relay) drop(c net.Conn) {
	y.mu.Lock()
	defer y.mu.Unlock()
	delete(y.conns, c)
	c.Close()
}

func (y *relay) pass(c net.Conn) {
	defer y.drop(c)
	target, ok := y.admit(c)
	if !ok {
		return
	}
	s, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer s.Close()
	go func() {
		io.Copy(s, c)
		s.(*net.TCPConn).CloseWrite() // four-letter words end when the client closes its side
	}()
	io.Copy(c, s)
}

// TestRefereeSeesViolations checks that the referee reports violations.
func TestRefereeSeesViolations(t *testing.T) {
	type entry struct {
		mode  string
		limit int
	}
	for _, c := range []struct {
		name    string
		inside  []entry
		last    entry
		allowed bool
	}{
		{"two alone", []entry{{"x", 1}}, entry{"x", 1}, false},
		{"one alone", nil, entry{"x", 1}, true},
		{"readers share", []entry{{"r", 1}, {"r", 1}}, entry{"r", 1}, true},
		{"writer beside reader", []entry{{"r", 1}}, entry{"w", 1}, false},
		{"reader beside writer", []entry{{"w", 1}}, entry{"r", 1}, false},
		{"two writers", []entry{{"w", 1}}, entry{"w", 1}, false},
		{"third of three leases", []entry{{"s", 3}, {"s", 3}}, entry{"s", 3}, true},
		{"fourth of three leases", []entry{{"s", 3}, {"s", 3}, {"s", 3}}, entry{"s", 3}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &referee{keys: map[string]*critical{}}
			for _, e := range c.inside {
				a, b := net.Pipe()
				defer a.Close()
				defer b.Close()
				must.Equal(t, r.enter(a, "k", e.mode, e.limit), "ok")
			}
			a, b := net.Pipe()
			defer a.Close()
			defer b.Close()
			got := r.enter(a, "k", c.last.mode, c.last.limit)
			expect.That(t, (got == "ok") == c.allowed && len(r.violations) > 0 != c.allowed,
				"answer %q, violations %v", got, r.violations)
			expect.That(t, c.allowed || strings.HasPrefix(got, "violation: k "), "answer %q", got)
			r.gone(a)
			expect.Equal(t, len(r.keys["k"].inside), len(c.inside),
				"a connection that ended is still inside")
		})
	}
}
