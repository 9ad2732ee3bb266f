package raftfsm

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/zlockd/zlockd/jute"
)

// asker is one session's way to write.
type asker struct {
	t testing.TB
	n *Node
	s Outcome
}

func newAsker(t testing.TB, n *Node) *asker {
	eventually(t, "serving", func() bool { ok, _ := n.Serving(); return ok })
	return &asker{t, n, openSession(t, n, 10_000)}
}

func (a *asker) do(op jute.OpCode, body []byte) jute.ErrCode {
	a.t.Helper()
	o, err := propose(a.n, Request{Session: a.s.Session.ID, Gen: a.s.Session.Gen, Op: op, Body: body})
	if err != nil {
		a.t.Fatal(err)
	}
	return o.Code
}

func (a *asker) create(path string) jute.ErrCode { return a.do(jute.OpCreate, createBody(path, 0)) }

func (a *asker) set(path, data string) jute.ErrCode {
	b := jute.AppendBuffer(jute.AppendString(nil, path), []byte(data))
	return a.do(jute.OpSetData, jute.AppendInt(b, -1))
}

func (a *asker) remove(path string) jute.ErrCode {
	return a.do(jute.OpDelete, jute.AppendInt(jute.AppendString(nil, path), -1))
}

// A disk that fills up refuses what grows and nothing else, on the word of the
// leader, and takes it again when there is room.
func TestL20LowDiskRefusesWhatGrows(t *testing.T) {
	var free atomic.Int64
	free.Store(512 << 20)
	n, _ := start(t, Options{DataDir: t.TempDir(), FreeBytes: func(string) (int64, error) { return free.Load(), nil }})
	a := newAsker(t, n)
	if code := a.create("/a"); code != jute.OK { // four bytes of data
		t.Fatalf("create with just enough room: %v", code)
	}
	free.Add(-1)
	eventually(t, "creates are refused", func() bool { return a.create("/b") == jute.Throttled || a.remove("/b") != jute.OK })
	for _, c := range []struct {
		name      string
		got, want jute.ErrCode
	}{
		{"more data", a.set("/a", "12345"), jute.Throttled},
		{"as much data", a.set("/a", "1234"), jute.OK},
		{"less data", a.set("/a", "1"), jute.OK},
		{"delete", a.remove("/a"), jute.OK},
	} {
		if c.got != c.want {
			t.Errorf("%s on a low disk: %v, want %v", c.name, c.got, c.want)
		}
	}
	b := newAsker(t, n) // sessions live
	free.Add(1)
	eventually(t, "creates are taken again", func() bool { return b.create("/b") == jute.OK })
}

// The size of the tree is bounded in the same way.
func TestL19TreeSizeIsBounded(t *testing.T) {
	for name, o := range map[string]Options{"nodes": {MaxNodes: 20}, "bytes": {MaxBytes: 300}} {
		t.Run(name, func(t *testing.T) {
			n, _ := start(t, o)
			a := newAsker(t, n)
			made := 0
			eventually(t, "creates are refused", func() bool {
				made++
				return a.create(fmt.Sprintf("/x%d", made)) == jute.Throttled
			})
			if n.Status().Full == "" {
				t.Error("the status does not tell why")
			}
			for i := range made - 1 {
				if code := a.remove(fmt.Sprintf("/x%d", i+1)); code != jute.OK {
					t.Fatalf("delete: %v", code)
				}
			}
			eventually(t, "creates are taken again", func() bool { return a.create("/y") == jute.OK })
		})
	}
}
