package recipe

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

const (
	PolicyLayout  = "rw1"
	policyKindW   = "w"
	policyKindU   = "u"
	policyPattern = "q-00000000-0000-0000-0000-000000000000"
)

// NewPolicyRecord returns the record for the directory of a new lock with a policy.
func NewPolicyRecord(p Policy, maxWriterWait time.Duration) Record {
	return Record{Layout: PolicyLayout, Policy: p.String(), MaxWriterWait: maxWriterWait.String(),
		Door: new(string)}
}

// DefaultMaxWriterWait is how long readers may overtake a writer under [PolicyReader], unless the
// record says otherwise.
const DefaultMaxWriterWait = 10 * time.Second

// ParsePolicyRecord reads a directory's data; it reports false if they are not those of a policy
// lock.
func ParsePolicyRecord(b []byte) (Record, bool) {
	r, ok := ParseRecord(b)
	return r, ok && r.Layout == PolicyLayout
}

// Mark reads the mark. A mark that it cannot read counts as no mark.
func (r Record) Mark() Door {
	if r.Door == nil {
		return Door{}
	}
	id, ok := ParseUUID(*r.Door)
	switch {
	case ok && r.Kind == policyKindW:
		return Door{id, DoorWrite}
	case ok && r.Kind == policyKindU:
		return Door{id, DoorUpgrade}
	}
	return Door{}
}

// WithDoor returns the record with another mark.
func (r Record) WithDoor(g Door) Record {
	owner := g.Owner.UUID()
	r.Door = &owner
	switch g.Kind {
	case DoorWrite:
		r.Kind = policyKindW
	case DoorUpgrade:
		r.Kind = policyKindU
	default:
		owner, r.Kind = "", ""
	}
	return r
}

// WriterBound returns how long readers may overtake a writer.
func (r Record) WriterBound() time.Duration {
	d, err := time.ParseDuration(r.MaxWriterWait)
	if err != nil || d < 0 {
		return DefaultMaxWriterWait
	}
	return d
}

// Name returns the name of a node. A queue node that does not exist yet has no number in it.
func (n PolicyNode) Name(numbered bool) string {
	role, letter := "h-", "-R"
	if !n.Kind.Hold() {
		role = "q-"
	}
	if n.Kind == QueueWrite || n.Kind == HoldWrite {
		letter = "-W"
	}
	name := role + n.ID.UUID() + letter
	switch {
	case n.Kind.Hold():
	case numbered:
		name += fmt.Sprintf("-%010d", n.Seq)
	default:
		name += "-"
	}
	return name
}

// ParsePolicyNode reads the name of a node of this layout.
func ParsePolicyNode(name string) (PolicyNode, bool) {
	if len(name) < len(policyPattern)+2 {
		return PolicyNode{}, false
	}
	id, ok := ParseUUID(name[2:len(policyPattern)])
	if !ok {
		return PolicyNode{}, false
	}
	n := PolicyNode{ID: id}
	rest := name[len(policyPattern):]
	switch name[:2] + rest[:2] {
	case "h--R":
		n.Kind = HoldRead
	case "h--W":
		n.Kind = HoldWrite
	case "q--R":
		n.Kind = QueueRead
	case "q--W":
		n.Kind = QueueWrite
	default:
		return PolicyNode{}, false
	}
	rest = rest[2:]
	if n.Kind.Hold() {
		return n, rest == ""
	}
	number, dash := strings.CutPrefix(rest, "-")
	n.Seq, ok = ParseSeq(number)
	return n, ok && dash
}

// ParsePolicyNodes parses a list. It fails on a contender of another layout, which would not see
// this package's nodes.
func ParsePolicyNodes(names []string) ([]PolicyNode, error) {
	nodes := make([]PolicyNode, 0, len(names))
	for _, name := range names {
		if n, ok := ParsePolicyNode(name); ok {
			nodes = append(nodes, n)
		} else if _, layout, ok := ParseName(name); ok {
			return nil, fmt.Errorf("%w: %s is a %v node in the directory of a lock with a policy", ErrMixedLayout,
				name, layout)
		}
	}
	return nodes, nil
}

// Record is what this package keeps in the data of a lock's directory.
type Record struct {
	ZL     int     `json:"zl"`               // 1
	Holder *string `json:"holder,omitempty"` // lock delay: id of the hold, "" after a clean unlock
	Limit  int     `json:"limit,omitempty"`  // of a semaphore

	// Of a lock with a policy.
	Layout        string  `json:"layout,omitempty"` // "rw1"
	Policy        string  `json:"policy,omitempty"`
	MaxWriterWait string  `json:"maxWriterWait,omitempty"`
	Door          *string `json:"gate,omitempty"` // whom the door is closed for: the uuid of its node, or empty
	Kind          string  `json:"kind,omitempty"`
}

// ParseRecord reads a directory's data. Empty data give the zero record; for data of other programs
// it reports false.
func ParseRecord(b []byte) (Record, bool) {
	var r Record
	if len(b) == 0 {
		return r, true
	}
	if len(b) > 2*MaxOwnerData || b[0] != '{' || json.Unmarshal(b, &r) != nil || r.ZL != 1 ||
		len(r.Policy) > 20 {
		return Record{}, false
	}
	return r, true
}

func (r Record) Encode() []byte {
	r.ZL = 1
	b, _ := json.Marshal(r) // strings and numbers only
	return b
}
