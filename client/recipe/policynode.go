package recipe

import (
	"fmt"
	"slices"
	"strings"
)

// Policy decides the order of readers and writers of a read-write lock.
type Policy uint8

const (
	// PolicyFair serves contenders in the order of arrival.
	PolicyFair Policy = iota
	// PolicyReader lets readers overtake waiting writers, for a bounded time.
	PolicyReader
	// PolicyWriter lets no reader in while a writer waits.
	PolicyWriter
)

var policyNames = [...]string{"fair", "reader", "writer"}

// String returns "fair", "reader" or "writer".
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy %d", p)
}

// ParsePolicy reads what [Policy.String] writes.
func ParsePolicy(s string) (Policy, error) {
	if i := slices.Index(policyNames[:], s); i >= 0 {
		return Policy(i), nil
	}
	return 0, fmt.Errorf("%w: policy %q", ErrInvalid, s)
}

// The policy layout, "rw1" on disk, has separate nodes for queueing and for holding. Queue nodes (q-…) show
// the order in which contenders came. Hold nodes (h-…) show which contenders hold the lock. While the data of
// the directory name a writer or an upgrading reader, the door is closed: no reader gets the lock.

// PolicyRole is the role of a node in the directory of a policy lock.
type PolicyRole uint8

const (
	QueueRead  PolicyRole = iota + 1 // q-<uuid>-R-<seq>
	QueueWrite                       // q-<uuid>-W-<seq>
	HoldRead                         // h-<uuid>-R
	HoldWrite                        // h-<uuid>-W
)

func (k PolicyRole) Hold() bool { return k == HoldRead || k == HoldWrite }

// PolicyNode is one parsed child of the directory.
type PolicyNode struct {
	ID   ID
	Kind PolicyRole
	Seq  int32 // queue nodes only
}

// policyForms are the texts before and after the id in the name of a node, by role.
var policyForms = [...]struct{ before, behind string }{
	QueueRead: {"q-", "-R-"}, QueueWrite: {"q-", "-W-"}, HoldRead: {"h-", "-R"}, HoldWrite: {"h-", "-W"},
}

// Name returns the name of a node. If `numbered` is false, the name of a queue node ends before the number,
// which the server appends.
func (n PolicyNode) Name(numbered bool) string {
	form := policyForms[n.Kind]
	name := form.before + n.ID.UUID() + form.behind
	if numbered && !n.Kind.Hold() {
		name += fmt.Sprintf("%010d", n.Seq)
	}
	return name
}

// ParsePolicyNode reads the name of a node of a lock with a policy.
func ParsePolicyNode(name string) (PolicyNode, bool) {
	const idEnds = len("q-") + 36
	if len(name) < idEnds {
		return PolicyNode{}, false
	}
	id, ok := ParseUUID(name[len("q-"):idEnds])
	for kind, form := range policyForms {
		number, fits := strings.CutPrefix(name[idEnds:], form.behind)
		if !ok || !fits || name[:len("q-")] != form.before {
			continue
		}
		n := PolicyNode{ID: id, Kind: PolicyRole(kind)}
		if n.Kind.Hold() {
			return n, number == ""
		}
		n.Seq, ok = ParseSeq(number)
		return n, ok
	}
	return PolicyNode{}, false
}

// IsPolicyNode reports whether a name belongs to a node of a lock with a policy.
func IsPolicyNode(name string) bool {
	if len(name) < 2 || name[1] != '-' { // a quick answer for nearly all names
		return false
	}
	_, ok := ParsePolicyNode(name)
	return ok
}

// ParsePolicyNodes parses the names of a directory's children. It fails on a contender of another layout,
// because that contender would not see the nodes of a lock with a policy.
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
