package seglog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// Scan calls fn for every entry of a log that no process has open, oldest entry first, and changes nothing.
// It returns the same errors as Open. `torn` is the place of an interrupted write that was never
// acknowledged; it is "" if no write was interrupted.
func Scan(dir string, fn func(l *raft.Log, place string) error) (torn string, err error) {
	place := func(s *segment, at int) string { return fmt.Sprintf("%s at byte %d", s.name, at) }
	all, err := vfs.ReadOnly.List(dir)
	if err != nil {
		return "", err
	}
	names := slices.DeleteFunc(all, func(name string) bool { return !strings.HasSuffix(name, ".log") })
	segments, _, err := readSegments(vfs.ReadOnly, dir, names, func(vfs.File, bool) error { return nil })
	if err != nil {
		return "", err
	}
	for _, s := range segments {
		b, err := vfs.ReadFile(vfs.ReadOnly, s.name)
		if err != nil {
			return "", err
		}
		for i, at := range s.offsets {
			var l raft.Log
			r, err := parse(b[at:], int(at))
			if err == nil {
				err = decode(b[at:][:r.size], &l)
			}
			if err != nil {
				return "", fmt.Errorf("%s: log entry %d: %w", place(s, int(at)), s.base+uint64(i), err)
			}
			if err := fn(&l, place(s, int(at))); err != nil {
				return "", err
			}
		}
		if torn = ""; s.torn {
			torn = place(s, s.end)
		}
	}
	return torn, nil
}
