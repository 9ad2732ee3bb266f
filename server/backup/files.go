package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// prefix begins the names of this server's backups. Names sort by time.
func (t *Taker) prefix() string { return fmt.Sprintf("zlockd-%d-", t.ID) }

const suffix = ".backup"

// stamp begins the names of the backups of one second.
func (t *Taker) stamp(at time.Time) string {
	return t.prefix() + at.UTC().Format("20060102T150405Z")
}

// files returns the names of this server's files that end with end, sorted.
func (t *Taker) files(end string) (names []string) {
	entries, err := os.ReadDir(t.Dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), t.prefix()) && strings.HasSuffix(e.Name(), end) {
			names = append(names, e.Name())
		}
	}
	return names
}

// list returns this server's backups, oldest first. Backups with a future time were taken while
// the clock was ahead, before the others: if they counted as the newest, each new backup would go
// at once.
func (t *Taker) list(now time.Time) []string {
	names := t.files(suffix)
	behind := t.stamp(now.Add(time.Second))
	ahead, _ := slices.BinarySearch(names, behind)
	return slices.Concat(names[ahead:], names[:ahead])
}

func (t *Taker) prune(now time.Time) error {
	var errs []error
	names := t.list(now)
	for _, name := range names[:max(0, len(names)-max(t.Keep, 1))] {
		errs = append(errs, os.Remove(filepath.Join(t.Dir, name)))
	}
	return errors.Join(errs...)
}
