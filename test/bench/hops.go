package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// hop is a goroutine's stay on a processor, from when it began to run until it
// waited for something.
type hop struct {
	server  string
	at, end int64 // ns
	id      string
	name    string // of the goroutine, by what it executes
	queued  int64  // ns between being woken and running
	did     []string
}

func (h *hop) what() string {
	s := h.name
	if h.queued > 500 {
		s += fmt.Sprintf(" (woken %.1f before)", micros(h.queued))
	}
	if len(h.did) > 0 {
		s += ": " + strings.Join(h.did, ", ")
	}
	return s
}

// transition is a line of the text form of an execution trace that says how a
// goroutine's state changes; the stack follows it.
var transition = regexp.MustCompile(`^M=\S+ P=\S+ G=(\S+) StateTransition Time=(\d+) GoID=(\d+) (\w+)->(\w+)`)

// hopReader makes hops of transitions.
type hopReader struct {
	server string
	hops   []hop
	open   map[string]*hop   // running, or in a system call
	names  map[string]string // of goroutines, once a stack was seen
	woken  map[string]int64  // runnable, since
	wakes  []wake            // to be named at the end
	calls  map[string]call   // system calls under way
}

type call struct {
	at   int64
	what string
}

type wake struct {
	h     *hop
	did   int
	woken string
}

// readHops reads what `go tool trace -d=parsed` prints.
func readHops(r io.Reader, server string) ([]hop, error) {
	hr := &hopReader{server: server, open: map[string]*hop{}, names: map[string]string{},
		woken: map[string]int64{}, calls: map[string]call{}}
	var all []*hop
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	var m, stack []string
	flush := func() {
		if m != nil {
			if h := hr.take(m, stack); h != nil {
				all = append(all, h)
			}
		}
		m, stack = nil, nil
	}
	for in.Scan() {
		line := in.Text()
		switch {
		case strings.HasPrefix(line, "M="):
			flush()
			m = transition.FindStringSubmatch(line)
		case strings.HasPrefix(line, "Stack=") && stack != nil:
			// The goroutine's own stack was given already.
		case strings.HasPrefix(line, "\t") && strings.Contains(line, " @ 0x"):
			f, _, _ := strings.Cut(strings.TrimSpace(line), " @ ")
			stack = append(stack, f[strings.LastIndexByte(f, '/')+1:])
		}
	}
	flush()
	if err := in.Err(); err != nil {
		return nil, err
	}
	for _, w := range hr.wakes {
		w.h.did[w.did] = "wakes " + cmp.Or(hr.names[w.woken], "goroutine "+w.woken)
	}
	for _, h := range all {
		if h.end == 0 {
			continue
		}
		h.name = cmp.Or(hr.names[h.id], "goroutine "+h.id)
		hr.hops = append(hr.hops, *h)
	}
	slices.SortFunc(hr.hops, func(a, b hop) int { return cmp.Compare(a.at, b.at) })
	return hr.hops, nil
}

// take handles one transition, and returns the hop that it begins.
func (hr *hopReader) take(m, stack []string) *hop {
	by, id, from, to := m[1], m[3], m[4], m[5]
	at, _ := strconv.ParseInt(m[2], 10, 64)
	if from == "Running" { // the stack is this goroutine's own
		if name := nameOf(stack); name != "" {
			hr.names[id] = name
		}
	}
	h := hr.open[id]
	if c, ok := hr.calls[id]; ok && from == "Syscall" {
		delete(hr.calls, id)
		if h != nil {
			h.did = append(h.did, fmt.Sprintf("%s %.1f", c.what, micros(at-c.at)))
			h.end = at
		}
	}
	switch {
	case from == "Syscall" && to == "Running":
	case to == "Runnable":
		hr.woken[id] = at
		if b := hr.open[by]; b != nil && by != id {
			b.did = append(b.did, "")
			hr.wakes = append(hr.wakes, wake{b, len(b.did) - 1, id})
		}
		if h != nil { // preempted, or without a processor when the kernel let it go
			h.end = at
			delete(hr.open, id)
		}
	case to == "Syscall":
		if len(stack) > 0 {
			hr.calls[id] = call{at, strings.ToLower(stack[0][strings.LastIndexByte(stack[0], '.')+1:])}
		}
	case to == "Running":
		h = &hop{server: hr.server, at: at, id: id}
		if since, ok := hr.woken[id]; ok {
			h.queued = at - since
			delete(hr.woken, id)
		}
		hr.open[id] = h
		return h
	case from == "Running" && h != nil:
		h.end = at
		delete(hr.open, id)
	}
	return nil
}

// nameOf is the outermost function of a stack that says what a goroutine is for.
func nameOf(stack []string) string {
	for _, f := range slices.Backward(stack) {
		switch {
		case strings.HasPrefix(f, "runtime."), strings.HasPrefix(f, "sync."), strings.HasPrefix(f, "syscall."),
			strings.HasPrefix(f, "unix."), strings.Contains(f, "goFunc"), closure.MatchString(f):
			continue
		}
		return f
	}
	return ""
}

// closure is a function without a name.
var closure = regexp.MustCompile(`\.func\d+(\.\d+)*$`)
