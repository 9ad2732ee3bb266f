package watchers

// The names of this file are only for tests of packages that have watches.

// Bounds of the costs of a change, and steps in which memory is added up.
const (
	MaxTells    = maxTells
	TellsInStep = tellsInStep
	WatchStep   = watchStep
)

// Asked returns how many answers are kept about who may read.
func (t *Table) Asked() int { return len(t.asked) }
