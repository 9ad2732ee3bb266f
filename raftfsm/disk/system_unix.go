//go:build !windows

package disk

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockFile locks a file exclusively, or shared with other readers. It fails at once if another process has
// the lock.
func lockFile(f *os.File, shared bool) error {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	return unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
}

// unlockFile closes a locked file. The lock ends even if a process that was just started still has a copy of
// the descriptor: it keeps the copy until it executes its program.
func unlockFile(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}

// FreeBytes returns how many bytes a process without privileges may still write to the disk of a directory.
func FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // Bavail has another type on some systems
}

// Same reports whether two directories are on one disk. If a directory does not exist yet, its nearest
// existing parent counts.
func Same(a, b string) bool {
	device := func(dir string) (uint64, bool) {
		dir, err := filepath.Abs(dir)
		for err == nil {
			var st unix.Stat_t
			if unix.Stat(dir, &st) == nil {
				return uint64(st.Dev), true //nolint:unconvert // Dev has another type on some systems
			}
			if dir == filepath.Dir(dir) {
				break
			}
			dir = filepath.Dir(dir)
		}
		return 0, false
	}
	x, okX := device(a)
	y, okY := device(b)
	return okX && okY && x == y
}
