package peer

import "fmt"

// Shown is what a server has shown of its data directory to others. These values never decrease. A
// server that shows less than before runs from an old copy of the directory, and has forgotten
// promises that others count on, so it must not vote.
type Shown struct {
	Start uint64 `json:"start,omitempty"` // how often it was started
	Life  string `json:"life,omitempty"`  // random name of the last start
	Term  uint64 `json:"term,omitempty"`
	Index uint64 `json:"index,omitempty"` // of the last log entry it has applied
}

// Raise raises s, where it shows less, to what is shown now.
func (s *Shown) Raise(now Shown) {
	if now.Start > s.Start {
		s.Start, s.Life = now.Start, now.Life
	}
	s.Term = max(s.Term, now.Term)
	s.Index = max(s.Index, now.Index)
}

// Behind says how a directory, whose log ends at end, is behind what it showed before; empty: it is
// not.
func (s Shown) Behind(before Shown, end uint64) string {
	switch {
	case s.Start < before.Start:
		return fmt.Sprintf("it has been started %d times before, and %d are known", s.Start-1, before.Start)
	case s.Start == before.Start && s.Life != before.Life:
		return fmt.Sprintf("it was started for the %dth time once before", s.Start)
	case s.Start == before.Start:
		return "" // the same process, whose words may overtake each other
	case s.Term < before.Term:
		return fmt.Sprintf("it remembers term %d, and has been in term %d", s.Term, before.Term)
	case end < before.Index:
		return fmt.Sprintf("its log ends at entry %d, and it has applied entry %d", end, before.Index)
	}
	return ""
}
