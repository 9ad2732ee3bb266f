package seglog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// Place is where in a log's files an entry stands.
type Place struct {
	File   string
	Offset int
}

func (p Place) String() string { return fmt.Sprintf("%s at byte %d", p.File, p.Offset) }

// Scan calls fn for every entry of a log that no process has open, oldest first, and changes
// nothing. It refuses what Open refuses. torn is the place of an interrupted write that was never
// acknowledged, nil if there is none.
func Scan(dir string, fn func(*raft.Log, Place) error) (torn *Place, err error) {
	all, err := vfs.ReadOnly.List(dir)
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(all, func(name string) bool { return !strings.HasSuffix(name, ".log") })
	segments, _, err := readSegments(vfs.ReadOnly, dir, names, func(vfs.File, bool) error { return nil })
	if err != nil {
		return nil, err
	}
	for _, s := range segments {
		b, err := vfs.ReadFile(vfs.ReadOnly, s.name)
		if err != nil {
			return nil, err
		}
		for i, at := range s.offsets {
			var l raft.Log
			place := Place{s.name, int(at)}
			r, err := parse(b[at:], int(at))
			if err == nil {
				err = decode(b[at:][:r.size], &l)
			}
			if err != nil {
				return nil, fmt.Errorf("%v: log entry %d: %w", place, s.base+uint64(i), err)
			}
			if err := fn(&l, place); err != nil {
				return nil, err
			}
		}
		if torn = nil; s.torn {
			torn = &Place{s.name, s.end}
		}
	}
	return torn, nil
}
