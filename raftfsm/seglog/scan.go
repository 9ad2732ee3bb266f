package seglog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"
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
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".log") {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	// A later segment supersedes the entries of earlier ones from its base on.
	ends := make([]uint64, len(names)) // base of the segment behind; 0: none
	var next uint64
	for i := len(names) - 1; i >= 0; i-- {
		if _, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(names[i]), ".log"), 10, 64); err != nil {
			return nil, fmt.Errorf("%s is not a segment of the log", names[i])
		}
		base, err := readBase(names[i])
		if err != nil {
			return nil, err
		}
		if next != 0 && base >= next {
			names[i] = "" // superseded as a whole
			continue
		}
		ends[i], next = next, base
	}
	for i, name := range names {
		if name == "" {
			continue
		}
		if torn, err = scanSegment(name, ends[i], fn); err != nil {
			return nil, err
		}
	}
	return torn, nil
}

func readBase(name string) (uint64, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b := make([]byte, headerSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	base, err := readHeader(b)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return base, nil
}

func scanSegment(name string, next uint64, fn func(*raft.Log, Place) error) (torn *Place, err error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	base, err := readWhole(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	end := headerSize
	for want := base; next == 0 || want < next; want++ {
		at := Place{name, end}
		r, err := parse(b[end:], end)
		if err == nil && r.index != want {
			err = errDamaged
		}
		if err != nil {
			if err := (&segment{base: base, end: end}).checkEnd(b, err, want, next); err != nil {
				return nil, fmt.Errorf("%v: log entry %d: %w", at, want, err)
			}
			if errors.Is(err, errTorn) {
				torn = &at
			}
			return torn, nil
		}
		var l raft.Log
		if err := decode(b[end:end+r.size], &l); err != nil {
			return nil, fmt.Errorf("%v: log entry %d: %w", at, want, err)
		}
		if err := fn(&l, at); err != nil {
			return nil, err
		}
		end += aligned(r.size)
	}
	return nil, nil
}
