package recipe

import (
	"fmt"
	"slices"
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
