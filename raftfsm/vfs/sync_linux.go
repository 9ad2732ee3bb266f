package vfs

import "golang.org/x/sys/unix"

func (f osFile) Datasync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			return wrap(f, "fdatasync", err)
		}
	}
}

func (f osFile) Forget() error {
	return wrap(f, "fadvise", unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}
