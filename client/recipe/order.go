package recipe

import "strings"

// Before reports whether the number a comes before the number b. It compares their difference with 0, so it
// stays right when the numbers wrap.
func Before(a, b int32) bool { return a-b < 0 }

// Compare compares two contenders by their order in the queue. If zlock was downgraded from write to read,
// its read node keeps the number of its write node. Then the write node comes first, because it excludes all
// others while it exists.
func Compare(a, b Contender) int {
	switch {
	case a.Seq != b.Seq:
		if Before(a.Seq, b.Seq) {
			return -1
		}
		return 1
	case a.Kind.Exclusive() != b.Kind.Exclusive():
		if a.Kind.Exclusive() {
			return -1
		}
		return 1
	}
	return strings.Compare(a.Name, b.Name)
}
