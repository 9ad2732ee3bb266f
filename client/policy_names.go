package client

import (
	"fmt"
	"strings"
	"time"
)

const (
	policyLayout  = "rw1"
	policyKindW   = "w"
	policyKindU   = "u"
	policyPattern = "q-00000000-0000-0000-0000-000000000000"
)

func newPolicyRecord(cfg *lockConfig) dirRecord {
	return dirRecord{Layout: policyLayout, Policy: cfg.policy.String(), MaxWriterWait: cfg.maxWriterWait.String(), Door: new(string)}
}

// parsePolicyRecord reads a directory's data; false if it is not that of a policy lock.
func parsePolicyRecord(b []byte) (dirRecord, bool) {
	r, ok := parseDir(b)
	return r, ok && r.Layout == policyLayout
}

// door reads the mark. What cannot be read is no mark.
func (r dirRecord) door() policyDoor {
	if r.Door == nil {
		return policyDoor{}
	}
	id, ok := parseUUID(*r.Door)
	switch {
	case ok && r.Kind == policyKindW:
		return policyDoor{id, policyDoorWrite}
	case ok && r.Kind == policyKindU:
		return policyDoor{id, policyDoorUpgrade}
	}
	return policyDoor{}
}

// withDoor returns the record with another mark.
func (r dirRecord) withDoor(g policyDoor) dirRecord {
	owner := g.owner.uuid()
	r.Door = &owner
	switch g.kind {
	case policyDoorWrite:
		r.Kind = policyKindW
	case policyDoorUpgrade:
		r.Kind = policyKindU
	default:
		owner, r.Kind = "", ""
	}
	return r
}

// writerBound is for how long readers may overtake a writer.
func (r dirRecord) writerBound() time.Duration {
	d, err := time.ParseDuration(r.MaxWriterWait)
	if err != nil || d < 0 {
		return defaultMaxWriterWait
	}
	return d
}

// name returns the name of a node; that of a queue node still to be created
// lacks its number.
func (n policyNode) name(numbered bool) string {
	role, letter := "h-", "-R"
	if !n.kind.hold() {
		role = "q-"
	}
	if n.kind == policyQueueWrite || n.kind == policyHoldWrite {
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

// parsePolicy reads the name of a node of this layout.
func parsePolicy(name string) (policyNode, bool) {
	if len(name) < len(policyPattern)+2 {
		return policyNode{}, false
	}
	id, ok := parseUUID(name[2:len(policyPattern)])
	if !ok {
		return policyNode{}, false
	}
	n := policyNode{id: id}
	rest := name[len(policyPattern):]
	switch name[:2] + rest[:2] {
	case "h--R":
		n.kind = policyHoldRead
	case "h--W":
		n.kind = policyHoldWrite
	case "q--R":
		n.kind = policyQueueRead
	case "q--W":
		n.kind = policyQueueWrite
	default:
		return policyNode{}, false
	}
	rest = rest[2:]
	if n.kind.hold() {
		return n, rest == ""
	}
	number, dash := strings.CutPrefix(rest, "-")
	n.seq, ok = parseSeq(number)
	return n, ok && dash
}

// policyNodes parses a list. A contender of another layout in it would not see ours.
func policyNodes(names []string) ([]policyNode, error) {
	nodes := make([]policyNode, 0, len(names))
	for _, name := range names {
		if n, ok := parsePolicy(name); ok {
			nodes = append(nodes, n)
		} else if _, layout, ok := parseName(name); ok {
			return nil, fmt.Errorf("%w: %s is a %v node in the directory of a lock with a policy", ErrMixedLayout, name, layout)
		}
	}
	return nodes, nil
}
