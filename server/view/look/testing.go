package look

import "time"

// With returns a looker for tests. Its newest scan is s, which serves for several hours.
func With(from Source, s *Scan) *Looker {
	l := New(from, false)
	s.At, s.Took, s.by = time.Now(), time.Hour, l
	l.scans.newest = s
	return l
}
