package oracle

import (
	"slices"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// Known is a difference that is no fault: the first server is ZooKeeper 3.8, and the second server follows
// 3.9 or closes a gap of 3.8.
type Known struct {
	Name   string
	Reason string
	// match() returns how many of the next frames of each server the difference explains: none if it does not
	// apply.
	match func(d *diff) (skipA, skipB int)
}

// diff is a place where the servers differ. `a` or `b` is nil if nothing more arrived from that server.
type diff struct {
	r    *Runner
	step *Step
	conn string
	a, b *canon
}

// known() looks the difference up in the table.
func (d *diff) known() (skipA, skipB int) {
	for i := range table {
		if skipA, skipB = table[i].match(d); skipA+skipB > 0 {
			d.r.Uses[table[i].Name]++
			return skipA, skipB
		}
	}
	return 0, 0
}

// both() reports whether both servers answered the same request of an operation.
func (d *diff) both(op string) bool {
	return d.a != nil && d.b != nil && d.a.step != nil && d.a.step == d.b.step && d.a.step.Op == op
}

var table = []Known{{
	Name: "checkWatches sees own watches only",
	Reason: "In 3.8 checkWatches answers OK when any connection watches the path; 3.9 and zlockd ask " +
		"for a watch of the calling connection (watches, section 6).",
	match: func(d *diff) (int, int) {
		if !d.both("checkWatches") || d.a.code != jute.OK || d.b.code != jute.NoWatcher {
			return 0, 0
		}
		// Does another connection watch the path? Ask for a watch of any type: 3.8 counts a persistent watch for
		// every type.
		any := &Step{Op: "checkWatches", Path: d.a.step.Path, Mode: jute.WatcherAny}
		for _, name := range d.r.b.names() {
			if name != d.conn && d.r.b.ask(name, any) == jute.OK {
				return 1, 1
			}
		}
		return 0, 0
	},
}, {
	Name: "catch-up events need READ",
	Reason: "setWatches of 3.8 tells of changes to nodes that the connection may not read; zlockd filters " +
		"these " +
		"events like all others (semantics, section 9.5).",
	match: func(d *diff) (int, int) {
		if d.a == nil || d.a.event == nil || *d.a.event == jute.EventDeleted ||
			d.step.Op != "setWatches" && d.step.Op != "setWatches2" {
			return 0, 0
		}
		if d.r.b.ask(d.conn, &Step{Op: "getData", Path: d.a.path}) != jute.NoAuth {
			return 0, 0
		}
		return 1, 0
	},
}, {
	Name: "create2 in a multi answers with a Stat",
	Reason: "3.8 answers a create2 inside a multi like a create, 3.9 and zlockd with type 15, path and Stat " +
		"(wire, section 9).",
	match: func(d *diff) (int, int) {
		if d.both("multi") && d.a.text == d.b.alt {
			return 1, 1
		}
		return 0, 0
	},
}, {
	Name: "descendants of the empty path",
	Reason: "The empty path is another name of the root; 3.8 then counts the root as a descendant of itself, " +
		"zlockd does not (semantics, section 1).",
	match: func(d *diff) (int, int) {
		if !d.both("getAllChildren") || d.a.step.Path != "" {
			return 0, 0
		}
		headA, a := lastNumber(d.a.text)
		headB, b := lastNumber(d.b.text)
		if headA == headB && a == b+1 {
			return 1, 1
		}
		return 0, 0
	},
}, {
	Name: "order of an auth entry's expansion",
	Reason: "An ACL entry of scheme auth becomes one entry for each digest identity of the connection, in the " +
		"order of " +
		"a hash table in 3.8 and of authentication in zlockd.",
	match: func(d *diff) (int, int) {
		if d.both("getACL") && d.a.alt == d.b.alt && strings.Count(d.a.text, `"digest"`) > 1 {
			return 1, 1
		}
		return 0, 0
	},
}, {
	Name: "nothing follows an error",
	Reason: "3.8 sends an empty list of results after the error header of a multi that it cannot decode " +
		"(wire, section 4).",
	match: func(d *diff) (int, int) {
		if (d.both("multi") || d.both("multiRead")) && d.a.code == jute.MarshallingError && d.a.text == d.b.text+
			" +9 bytes" {
			return 1, 1
		}
		return 0, 0
	},
}, {
	Name: "illegal create flags in a multi",
	Reason: "3.8 reports BADARGUMENTS for the one operation, 3.9 and zlockd cannot decode the whole multi " +
		"(semantics, section 8).",
	match: func(d *diff) (int, int) {
		illegal := func(o Step) bool { return strings.HasPrefix(o.Op, "create") && (o.Flags < 0 || o.Flags > 6) }
		if d.both("multi") && d.b.code == jute.MarshallingError && strings.Contains(d.a.text, "[error ") &&
			slices.ContainsFunc(d.a.step.Ops, illegal) {
			return 1, 1
		}
		return 0, 0
	},
}}

// lastNumber splits the number off the end of a canonical text.
func lastNumber(text string) (head string, n int) {
	i := strings.LastIndexByte(text, ' ')
	n, _ = strconv.Atoi(text[i+1:])
	return text[:i+1], n
}

// ask() sends a request that changes nothing and returns the reply's code.
func (s *side) ask(name string, st *Step) jute.ErrCode {
	if s.conns[name] == nil {
		return jute.UnknownSession
	}
	s.send(name, []*Step{st})
	list := s.collect(name)
	if len(list) == 0 || list[len(list)-1].end != nil {
		return jute.UnknownSession
	}
	return list[len(list)-1].frame.Code
}
