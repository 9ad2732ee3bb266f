package faultproxy

import (
	"sync"
	"time"
)

// Action is the treatment of a frame that a rule matches.
type Action uint8

const (
	// Pass lets the frame through; the rule only counts.
	Pass Action = iota
	// Drop drops the frame. The connection stays open.
	Drop
	// Delay holds the frame, and all after it in its direction, for a time.
	Delay
	// Hold is like Delay, but holds the frames until the rule is released.
	Hold
	// CutBefore closes the connection instead of passing the frame on.
	CutBefore
	// CutAfter passes the frame on and then closes the connection.
	CutAfter
	// Fail replaces a reply by an error code without a body.
	Fail
	// Refused answers a request with an error code. The proxy sends the server a read instead of the request, so
	// that the answer comes after the answers to earlier requests.
	Refused
	// Stash keeps a request for later and closes the connection. The client sees a server that may have
	// accepted the request; the request takes effect later.
	Stash
	// Unstash sends the stashed request before the frame, and drops the reply to the stashed request.
	Unstash
)

// Rule chooses frames. The zero values of its fields match everything.
type Rule struct {
	Kind  Kind
	Op    int32
	Under string           // only frames about paths at or below this
	Match func(Frame) bool // a further condition
	Nth   int              // only the n-th frame that matches; 0: each one
	Do    Action
	For   time.Duration // how long Delay holds a frame
	Code  int32         // error code of Fail and Refused
	Then  func()        // called in the proxy's goroutine when the rule acts, before the action
}

// Armed is a rule that a proxy uses.
type Armed struct {
	rule    Rule
	p       *Proxy
	seen    int
	acted   chan struct{}
	once    sync.Once
	release chan struct{}
	rel     sync.Once
}

// Acted is closed when the rule acts for the first time.
func (r *Armed) Acted() <-chan struct{} { return r.acted }

// Release passes on the frame that Hold holds, and later frames at once.
func (r *Armed) Release() { r.rel.Do(func() { close(r.release) }) }

// Seen returns how many frames matched.
func (r *Armed) Seen() int {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.seen
}

// Remove ends the rule.
func (r *Armed) Remove() {
	r.Release()
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	for i, x := range r.p.rules {
		if x == r {
			r.p.rules = append(r.p.rules[:i:i], r.p.rules[i+1:]...)
			return
		}
	}
}

// Add adds a rule; the first rule that matches a frame decides.
func (p *Proxy) Add(r Rule) *Armed {
	x := &Armed{rule: r, p: p, acted: make(chan struct{}), release: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, x)
	return x
}

// note() records a frame and returns the rule that decides about it.
func (p *Proxy) note(f Frame) *Armed {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keep {
		p.frames = append(p.frames, f)
	}
	for _, x := range p.rules {
		r := x.rule
		switch {
		case r.Kind != 0 && r.Kind != f.Kind, r.Op != 0 && r.Op != f.Op, r.Under != "" && !f.Under(r.Under),
			r.Match != nil && !r.Match(f):
			continue
		}
		x.seen++
		if r.Nth == 0 || x.seen == r.Nth {
			return x
		}
	}
	return nil
}
