//go:build !windows

package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks a file for this process alone, or shared with other readers. It fails at once
// if another process has the lock.
func lockFile(f *os.File, shared bool) error {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	return unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
}

// FreeBytes returns how many bytes a process without privileges may still write.
func FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // Bavail has another type elsewhere
}
