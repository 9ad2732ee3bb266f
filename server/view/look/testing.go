package look

import "time"

// With returns a looker for tests. For several hours it returns the scan s and makes no other.
func With(from Source, s *Scan) *Looker {
	l := New(from, false)
	s.At, s.Took, s.by = time.Now(), time.Hour, l
	l.scans.newest = s
	return l
}
