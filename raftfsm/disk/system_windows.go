package disk

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

func lockFile(f *os.File, shared bool) error {
	how := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if !shared {
		how |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	return windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, new(windows.Overlapped))
}

// unlockFile closes a locked file.
func unlockFile(f *os.File) error { return f.Close() }

// FreeBytes returns how many bytes a process without privileges may still write to the disk of a directory.
func FreeBytes(dir string) (int64, error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	err = windows.GetDiskFreeSpaceEx(path, &free, nil, nil)
	return int64(free), err
}

// Same reports whether two directories are on one disk.
func Same(a, b string) bool {
	a, errA := filepath.Abs(a)
	b, errB := filepath.Abs(b)
	return errA == nil && errB == nil && filepath.VolumeName(a) == filepath.VolumeName(b)
}
