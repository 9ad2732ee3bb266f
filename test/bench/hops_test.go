package main

import (
	"strings"
	"testing"
)

// TestReadHops reads a piece of a trace: a connection's goroutine is woken by
// the network, reads, wakes the batcher and waits; the batcher, whose name is
// learnt from the stack with which it waits, runs behind it and loses its
// processor in a call of the kernel.
func TestReadHops(t *testing.T) {
	trace := `M=1 P=0 G=-1 StateTransition Time=1000 GoID=7 Waiting->Runnable Reason=""
M=1 P=0 G=-1 StateTransition Time=3000 GoID=7 Runnable->Running Reason=""
M=1 P=0 G=7 StateTransition Time=3100 GoID=7 Running->Syscall Reason=""
TransitionStack=
	syscall.read @ 0x1
		/src/syscall.go:1
	example.org/x/clients.(*conn).serve @ 0x2
		/src/conn.go:2
	example.org/x/clients.(*Server).handle.func1 @ 0x3
		/src/accept.go:3

Stack=
	syscall.read @ 0x1
		/src/syscall.go:1

M=1 P=0 G=7 StateTransition Time=4600 GoID=7 Syscall->Running Reason=""
M=1 P=0 G=7 StateTransition Time=5000 GoID=9 Waiting->Runnable Reason=""
M=1 P=0 G=7 StateTransition Time=5200 GoID=7 Running->Waiting Reason="network"
M=1 P=0 G=-1 StateTransition Time=5300 GoID=9 Runnable->Running Reason=""
M=1 P=0 G=9 StateTransition Time=5400 GoID=9 Running->Syscall Reason=""
TransitionStack=
	golang.org/x/sys/unix.Fdatasync @ 0x4
		/src/unix.go:1
	example.org/x/raftfsm.(*term).batch @ 0x5
		/src/lead.go:2

M=1 P=0 G=-1 StateTransition Time=9400 GoID=9 Syscall->Runnable Reason=""
`
	hops, err := readHops(strings.NewReader(trace), "1")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"clients.(*conn).serve (woken 2.0 before): read 1.5, wakes raftfsm.(*term).batch",
		"raftfsm.(*term).batch: fdatasync 4.0",
	}
	if len(hops) != len(want) {
		t.Fatalf("%d hops, want %d: %v", len(hops), len(want), hops)
	}
	for i, h := range hops {
		if got := h.what(); got != want[i] {
			t.Errorf("hop %d: %s, want %s", i, got, want[i])
		}
	}
	if h := hops[1]; h.at != 5300 || h.end != 9400 {
		t.Errorf("the second hop lasts from %d to %d, want from 5300 to 9400", h.at, h.end)
	}
}

func TestMedianWrite(t *testing.T) {
	writes := []traced{{0, 10}, {10, 15}, {20, 50}, {60, 62}, {100, 120}}
	w, n, ok := medianWrite(writes, 5, 110)
	if !ok || n != 3 || w != (traced{10, 15}) {
		t.Errorf("median of %d: %v (%v), want the write from 10 to 15 of 3", n, w, ok)
	}
	if _, _, ok := medianWrite(nil, 0, 1); ok {
		t.Error("no writes have a median")
	}
}
