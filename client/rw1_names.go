package client

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// rw1Record is the data of an rw1 directory.
type rw1Record struct {
	ZL            int    `json:"zl"`
	Layout        string `json:"layout"`
	Policy        string `json:"policy"`
	MaxWriterWait string `json:"maxWriterWait"`
	Gate          string `json:"gate"` // uuid of the owner, or empty
	Kind          string `json:"kind,omitempty"`
}

const (
	rw1Layout  = "rw1"
	rw1KindW   = "w"
	rw1KindU   = "u"
	rw1Pattern = "q-00000000-0000-0000-0000-000000000000"
)

func newRW1Record(cfg *lockConfig) rw1Record {
	return rw1Record{ZL: 1, Layout: rw1Layout, Policy: cfg.policy.String(), MaxWriterWait: cfg.maxWriterWait.String()}
}

// parseRW1Record reads a directory's data; false if it is not that of an rw1 lock.
func parseRW1Record(b []byte) (rw1Record, bool) {
	var r rw1Record
	if json.Unmarshal(b, &r) != nil || r.ZL != 1 || r.Layout != rw1Layout {
		return rw1Record{}, false
	}
	return r, true
}

func (r rw1Record) encode() []byte {
	b, _ := json.Marshal(r) // strings and numbers only
	return b
}

// gate reads the mark. What cannot be read is no mark.
func (r rw1Record) gate() rw1Gate {
	id, ok := parseUUID(r.Gate)
	switch {
	case ok && r.Kind == rw1KindW:
		return rw1Gate{id, rw1GateWrite}
	case ok && r.Kind == rw1KindU:
		return rw1Gate{id, rw1GateUpgrade}
	}
	return rw1Gate{}
}

// withGate returns the record with another mark.
func (r rw1Record) withGate(g rw1Gate) rw1Record {
	r.Gate, r.Kind = "", ""
	switch g.kind {
	case rw1GateWrite:
		r.Gate, r.Kind = g.owner.uuid(), rw1KindW
	case rw1GateUpgrade:
		r.Gate, r.Kind = g.owner.uuid(), rw1KindU
	}
	return r
}

// writerBound is for how long readers may overtake a writer.
func (r rw1Record) writerBound() time.Duration {
	d, err := time.ParseDuration(r.MaxWriterWait)
	if err != nil || d < 0 {
		return defaultMaxWriterWait
	}
	return d
}

// name returns the name of a node; that of a queue node still to be created
// lacks its number.
func (n rw1Node) name(numbered bool) string {
	role, letter := "h-", "-R"
	if !n.kind.hold() {
		role = "q-"
	}
	if n.kind == rw1QueueWrite || n.kind == rw1HoldWrite {
		letter = "-W"
	}
	name := role + n.id.uuid() + letter
	switch {
	case n.kind.hold():
	case numbered:
		name += fmt.Sprintf("-%010d", n.seq)
	default:
		name += "-"
	}
	return name
}

// parseRW1 reads the name of a node of this layout.
func parseRW1(name string) (rw1Node, bool) {
	if len(name) < len(rw1Pattern)+2 {
		return rw1Node{}, false
	}
	id, ok := parseUUID(name[2:len(rw1Pattern)])
	if !ok {
		return rw1Node{}, false
	}
	n := rw1Node{id: id}
	rest := name[len(rw1Pattern):]
	switch name[:2] + rest[:2] {
	case "h--R":
		n.kind = rw1HoldRead
	case "h--W":
		n.kind = rw1HoldWrite
	case "q--R":
		n.kind = rw1QueueRead
	case "q--W":
		n.kind = rw1QueueWrite
	default:
		return rw1Node{}, false
	}
	rest = rest[2:]
	if n.kind.hold() {
		return n, rest == ""
	}
	number, dash := strings.CutPrefix(rest, "-")
	n.seq, ok = parseSeq(number)
	return n, ok && dash
}

// rw1Nodes parses a list. A contender of another layout in it would not see ours.
func rw1Nodes(names []string) ([]rw1Node, error) {
	nodes := make([]rw1Node, 0, len(names))
	for _, name := range names {
		if n, ok := parseRW1(name); ok {
			nodes = append(nodes, n)
		} else if _, layout, ok := parseName(name); ok {
			return nil, fmt.Errorf("%w: %s is a %v node in the directory of a lock with a policy", ErrMixedLayout, name, layout)
		}
	}
	return nodes, nil
}
