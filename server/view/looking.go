package view

import "time"

// lookerWith returns a looker that has just made a scan which serves for long, for tests.
func lookerWith(from source, s *scan) *looker {
	l := newLooker(from, false)
	s.at, s.took, s.by = time.Now(), time.Hour, l
	l.scans.newest = s
	return l
}
