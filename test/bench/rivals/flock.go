package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// flockLocker has the lock of a file. Its lock() waits on even if the context ends.
type flockLocker struct{ f *os.File }

// newFlockLocker opens the file of a lock in the directory `addr`.
func newFlockLocker(_ context.Context, addr, path string, _ time.Duration) (locker, error) {
	f, err := os.OpenFile(filepath.Join(addr, strings.ReplaceAll(path, "/", "-")), os.O_CREATE|os.O_RDWR, 0o600)
	return flockLocker{f}, err
}

func (l flockLocker) flock(how int) error {
	for {
		if err := syscall.Flock(int(l.f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func (l flockLocker) lock(context.Context) error   { return l.flock(syscall.LOCK_EX) }
func (l flockLocker) unlock(context.Context) error { return l.flock(syscall.LOCK_UN) }
func (l flockLocker) close()                       { _ = l.f.Close() }
