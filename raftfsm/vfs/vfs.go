// Package vfs has the few calls of a file system that the stores need. They are so few that a simulated disk
// can implement them, and can lose, tear, refuse or delay whatever a real disk can.
package vfs

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// FS is a file system. Names are paths.
//
// A change is readable at once, but durable only after a sync. File.Sync and File.Datasync make the contents
// of a file durable. SyncDir makes the names in a directory durable, after files were created, renamed or
// removed. Before the sync, a loss of power may undo any part of a change, in any order, sector by sector.
type FS interface {
	// Create creates a file that must not exist.
	Create(name string) (File, error)
	// Open opens a file that exists, for reading and writing.
	Open(name string) (File, error)
	// Rename moves a file in one step. It replaces a file that has the new name.
	Rename(from, to string) error
	Remove(name string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	MkdirAll(dir string) error
	SyncDir(dir string) error
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Name() string
	Size() (int64, error)
	// Sync makes the contents and the size durable.
	Sync() error
	// Datasync makes the contents durable. It is cheaper than Sync if the size has not changed since the last
	// Sync.
	Datasync() error
	// Forget drops the cached bytes of the file, except those still to be written, so that a read shows what
	// the disk holds. After a failed sync, the cache may hold bytes that the disk does not.
	Forget() error
}

// OS is the operating system's file system.
var OS FS = osFS{}

type osFS struct{}

// ReadOnly is the operating system's file system for programs that change no file, and may have no right to
// change one.
var ReadOnly FS = readOnlyFS{}

type readOnlyFS struct{ osFS }

func (readOnlyFS) Open(name string) (File, error) { return open(name, os.O_RDONLY) }

// ModTime returns when a file was last written. A simulated disk does not record that.
func (osFS) ModTime(name string) (time.Time, error) {
	info, err := os.Stat(name)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

func (osFS) Create(name string) (File, error) {
	return open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) { return open(name, os.O_RDWR) }

func open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(name string) error     { return os.Remove(name) }
func (osFS) MkdirAll(dir string) error    { return os.MkdirAll(dir, 0o700) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func wrap(f osFile, op string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: f.Name(), Err: err}
}

// ReadFile returns the contents of a file.
func ReadFile(fs FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := ReadAll(f)
	return b, errors.Join(err, f.Close())
}

// WriteFile writes a file durably. After a crash there is either the whole new file or the former file.
func WriteFile(fs FS, name string, b []byte) error {
	tmp := name + ".tmp"
	if err := fs.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := fs.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(tmp, name); err != nil {
		return err
	}
	return fs.SyncDir(filepath.Dir(name))
}

// Fill writes a file of the operating system durably; write() produces the content. After a crash
// there is either the whole new file or the former file.
func Fill(name string, write func(io.Writer) error) error { return fill(name, 0o600, os.Rename, write) }

// FillNew is like Fill, but gives the file a mode and never replaces a file: if there is a file of this name,
// even one that appears while FillNew writes, the error is os.ErrExist.
func FillNew(name string, mode os.FileMode, write func(io.Writer) error) error {
	return fill(name, mode, placeNew, write)
}

// placeNew renames a temporary file. If there is a file of the new name already, it returns an error.
func placeNew(from, to string) error {
	err := os.Link(from, to)
	switch {
	case err == nil:
		return os.Remove(from)
	case errors.Is(err, os.ErrExist):
		return err
	}
	// Some file systems have no links: reserve the name by an empty file.
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Rename(from, to))
}

// fill writes a temporary file and then calls place(), which renames it to its final name.
func fill(name string, mode os.FileMode, place func(from, to string) error,
	write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.tmp")
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 256<<10)
	if err = write(w); err == nil {
		err = w.Flush()
	}
	if err == nil && mode != 0o600 { // CreateTemp has set the mode 0o600
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = place(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // return the first error, not this one
		return err
	}
	return OS.SyncDir(filepath.Dir(name))
}

// Exists reports whether there is a file or a directory of this name.
func Exists(fs FS, name string) (bool, error) {
	list, err := fs.List(filepath.Dir(name))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return slices.Contains(list, filepath.Base(name)), err
}

// ReadAll returns the contents of an open file.
func ReadAll(f File) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}
