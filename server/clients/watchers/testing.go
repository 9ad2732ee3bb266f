package watchers

// The names of this file are only for tests of packages that have watches.

// Bounds of the cost of a change, and the growth after which memory is counted again.
const (
	MaxTells    = maxTells
	TellsInStep = tellsInStep
	WatchStep   = watchStep
)

// Asked returns how many answers mayRead keeps. Each is for a pair of a client's identities and an ACL.
func (t *Table) Asked() int { return len(t.asked) }
