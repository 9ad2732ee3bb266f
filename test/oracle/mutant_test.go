//go:build stock

package oracle_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/oracle"
)

// mutant changes what a server says. The function `lie` gets each frame from the server, with the operation
// that the frame answers, and returns the frames to pass on. It counts in `n` the frames that it could have
// changed.
type mutant struct {
	name string
	lie  func(op jute.OpCode, frame []byte, n *int) [][]byte
}

// every() returns a function `lie` that changes every k-th frame among the frames that want() selects.
func every(k int, want func(op jute.OpCode, b []byte) bool,
	change func(b []byte) [][]byte) func(jute.OpCode, []byte, *int) [][]byte {
	return func(op jute.OpCode, b []byte, n *int) [][]byte {
		if !want(op, b) {
			return [][]byte{b}
		}
		*n++
		if *n%k != 0 {
			return [][]byte{b}
		}
		return change(b)
	}
}

const opEvent jute.OpCode = -1000

func code(b []byte) jute.ErrCode { return jute.ErrCode(binary.BigEndian.Uint32(b[12:])) }

// okOf selects the successful replies to some operations.
func okOf(list ...jute.OpCode) func(jute.OpCode, []byte) bool {
	return func(op jute.OpCode, b []byte) bool { return slices.Contains(list, op) && code(b) == jute.OK }
}

func events(op jute.OpCode, _ []byte) bool { return op == opEvent }

// add() returns a change that adds `delta` to a 64-bit field. The parameter `end` is the distance from the
// end of the field to the end of the frame.
func add(end int, delta uint64) func([]byte) [][]byte {
	return func(b []byte) [][]byte {
		at := len(b) - end - 8
		binary.BigEndian.PutUint64(b[at:], binary.BigEndian.Uint64(b[at:])+delta)
		return [][]byte{b}
	}
}

// Distances of the Stat's fields from the end of a reply that ends with a Stat.
const (
	pzxid   = 0
	owner   = 16
	version = 28 // version and cversion as one field, in which cversion is the low half
	mzxid   = 52
)

var mutants = []mutant{
	{"an event is lost", every(20, events, func([]byte) [][]byte { return nil })},
	{"an event comes twice", every(20, events, func(b []byte) [][]byte { return [][]byte{b, b} })},
	{"an event names another type", every(20, events, func(b []byte) [][]byte {
		b[19] ^= 2
		return [][]byte{
			b}
	})},
	{"pzxid is not moved", every(20, okOf(jute.OpExists, jute.OpGetData, jute.OpGetChildren2),
		add(pzxid, ^uint64(0)))},
	{"mzxid is one too high", every(20, okOf(jute.OpSetData), add(mzxid, 1))},
	{"a version is one too high", every(20, okOf(jute.OpSetData, jute.OpGetData), add(version, 1))},
	{"the owner is another session", every(5, func(op jute.OpCode, b []byte) bool {
		return op == jute.OpGetData && code(b) == 0 && binary.BigEndian.Uint64(b[len(b)-owner-8:]) != 0
	}, add(owner, 1))},
	{"a sequence number is skipped", every(5, func(op jute.OpCode, b []byte) bool {
		return op == jute.OpCreate && code(b) == 0 && strings.Contains(string(b), "000000")
	}, func(b []byte) [][]byte { b[len(b)-1]++; return [][]byte{b} })},
	{"null data comes back empty", every(1, func(op jute.OpCode, b []byte) bool {
		return op == jute.OpGetData && code(b) == 0 && binary.BigEndian.Uint32(b[16:]) == 0xffffffff
	}, func(b []byte) [][]byte { clear(b[16:20]); return [][]byte{b} })},
	{"a name is missing in a listing", every(5, func(op jute.OpCode, b []byte) bool {
		return op == jute.OpGetChildren && code(b) == 0 && binary.BigEndian.Uint32(b[16:]) > 1
	}, func(b []byte) [][]byte {
		d := jute.NewDecoder(b[16:])
		names, _ := d.Strings()
		return [][]byte{jute.AppendStrings(slices.Clone(b[:16]), names[1:])}
	})},
	{"another error", every(10, func(op jute.OpCode, b []byte) bool {
		return op != opEvent &&
			code(b) == jute.NoNode
	},
		func(b []byte) [][]byte { b[15]--; return [][]byte{b} })},
	{"a body behind an error", every(10, func(op jute.OpCode, b []byte) bool {
		return op == jute.OpGetData &&
			code(b) != jute.OK
	},
		func(b []byte) [][]byte { return [][]byte{append(b, 0)} })},
	{"the header zxid lags", every(10, okOf(jute.OpGetData, jute.OpExists),
		func(b []byte) [][]byte { binary.BigEndian.PutUint64(b[4:], 1); return [][]byte{b} })},
	{"a multi forgets an operation", every(3, func(op jute.OpCode, b []byte) bool {
		return op == jute.OpMulti &&
			len(b) > 70 && code(b) == 0
	},
		func(b []byte) [][]byte { return [][]byte{append(b[:16:16], b[len(b)-9:]...)} })},
	{"a watch is not there", every(5, okOf(jute.OpRemoveWatches),
		func(b []byte) [][]byte { b[12], b[13], b[14], b[15] = 0xff, 0xff, 0xff, 0x87; return [][]byte{b} })},
	{"a reply is lost", every(5, okOf(jute.OpSync), func([]byte) [][]byte { return nil })},
}

// The comparison finds each planted bug within a few thousand requests. So a server without differences has
// none of these bugs.
func TestEveryPlantedBugIsFound(t *testing.T) {
	a, b := cluster.StartZooKeeper(t, realConfig...), cluster.StartZooKeeper(t, realConfig...)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			p := newProxy(t, b.Client, m)
			r := oracle.NewRunner(a.Client, p.addr)
			defer r.Close()
			r.Patience = 2 * time.Second
			for episode := uint64(0); r.Ops < 6000; episode++ {
				_, err := r.Episode(1, episode, episodeOps)
				var d *oracle.Difference
				if errors.As(err, &d) {
					t.Logf("found after %d requests: %v", r.Ops, err)
					return
				}
				must.OK(t, err)
			}
			t.Errorf("not found in %d requests", r.Ops)
		})
	}
}

// proxy passes frames between clients and a server. A mutant changes the server's frames.
type proxy struct {
	addr   string
	server string
	lie    func(jute.OpCode, []byte, *int) [][]byte

	mu sync.Mutex
	n  int
}

func newProxy(t *testing.T, server string, m mutant) *proxy {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &proxy{addr: l.Addr().String(), server: server, lie: m.lie}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close() })
	return p
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	asked := make(chan jute.OpCode, 1000)
	exempt := make(chan bool, 1) // the connection that cleans up gets the frames unchanged
	go func() {
		defer server.(*net.TCPConn).CloseWrite()
		for k := 0; ; k++ {
			b, err := readFrame(client)
			if err != nil {
				return
			}
			if k == 1 {
				exempt <- strings.Contains(string(b), oracle.Super)
			}
			if k > 0 && len(b) >= 8 {
				asked <- jute.OpCode(binary.BigEndian.Uint32(b[4:]))
			}
			if err := writeFrame(server, b); err != nil {
				return
			}
		}
	}()
	honest := false
	for k := 0; ; k++ {
		b, err := readFrame(server)
		if err != nil {
			return
		}
		if k == 0 {
			if writeFrame(client, b) != nil {
				return
			}
			continue
		}
		if k == 1 {
			honest = <-exempt
		}
		op := opEvent
		if int32(binary.BigEndian.Uint32(b)) != jute.XidEvent {
			op = <-asked
		}
		out := [][]byte{b}
		if !honest {
			p.mu.Lock()
			out = p.lie(op, b, &p.n)
			p.mu.Unlock()
		}
		for _, f := range out {
			if writeFrame(client, f) != nil {
				return
			}
		}
	}
}

func readFrame(c net.Conn) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(c, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(n[:]))
	_, err := io.ReadFull(c, b)
	return b, err
}

func writeFrame(c net.Conn, b []byte) error {
	_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// A program that shows a difference is shrunk to the steps that matter.
func TestShrinkKeepsWhatMatters(t *testing.T) {
	a, b := cluster.StartZooKeeper(t, realConfig...), cluster.StartZooKeeper(t, realConfig...)
	// The planted bug: a read of three bytes of data has a version that is too high.
	p := newProxy(t, b.Client, mutant{lie: every(1, func(op jute.OpCode, b []byte) bool {
		return op == jute.OpGetData && code(b) == 0 && binary.BigEndian.Uint32(b[16:]) == 3
	}, add(version, 1))})
	r := oracle.NewRunner(a.Client, p.addr)
	for episode := uint64(0); ; episode++ {
		program, err := r.Episode(1, episode, episodeOps)
		if err == nil {
			continue
		}
		short, err := r.Shrink(program, err, 5*time.Minute)
		t.Logf("%d steps became %d: %v\n%s", len(program), len(short), err, short)
		expect.That(t, len(short) <= 10, "the program still has %d steps", len(short))
		again, err := oracle.Parse(short.String())
		expect.That(t, err == nil && fmt.Sprint(again) == fmt.Sprint(short),
			"the script does not read back: %v", err)
		return
	}
}
