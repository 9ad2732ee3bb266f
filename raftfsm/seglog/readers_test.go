package seglog

import (
	"errors"
	"fmt"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The type `opened` is a file system that counts the open files, and runs a function while a file is opened.
type opened struct {
	vfs.FS
	files  int
	during func() error
}

func (o *opened) Open(string) (vfs.File, error) {
	if during := o.during; during != nil {
		o.during = nil
		if err := during(); err != nil {
			return nil, err
		}
	}
	o.files++
	return &openFile{of: o}, nil
}

type openFile struct {
	vfs.File
	of     *opened
	closed bool
}

func (f *openFile) Close() error {
	if f.closed {
		return errors.New("closed twice")
	}
	f.closed = true
	f.of.files--
	return nil
}

// Readers of a segment share one file, even if two readers open it at once. A file is closed if its segment
// leaves the log while a reader opens it. Only a few files without a reader stay open.
func TestReadersShareFiles(t *testing.T) {
	fs := new(opened)
	p := &files{fs: fs}
	var read vfs.File
	use := func(s *segment) error {
		return p.use(s, func(f vfs.File) error { read = f; return nil })
	}
	s := new(segment)
	broken := errors.New("no such file")
	fs.during = func() error { return broken }
	expect.Is(t, use(s), broken)
	expect.Equal(t, fs.files, 0, "files open after an error")

	fs.during = func() error { return use(s) } // while one reader opens the file, another one opens it first
	must.OK(t, use(s))
	expect.Equal(t, fs.files, 1, "files open of one segment")
	expect.That(t, !read.(*openFile).closed, "a reader has a closed file")
	expect.That(t, s.file == read, "the readers have different files")
	must.OK(t, use(s))
	expect.Equal(t, fs.files, 1, "files open after another read")
	must.OK(t, p.close(s))
	expect.Equal(t, fs.files, 0, "files open of a segment that has left the log")

	leaves := new(segment)
	fs.during = func() error { return p.close(leaves) }
	expect.Is(t, use(leaves), errGone)
	expect.Equal(t, fs.files, 0, "files open of a segment that left while it was opened")
	expect.That(t, leaves.file == nil, "the segment that left has an open file")
	expect.That(t, p.dropped(leaves), "the segment that left does not count as dropped")
	expect.Equal(t, leaves.users, 0, "readers of the segment that left")

	list := make([]*segment, 2*readers)
	for i := range list {
		list[i] = &segment{name: fmt.Sprint(i)}
		must.OK(t, use(list[i]))
		expect.Equal(t, fs.files, min(i+1, readers), "files open after reads of %d segments", i+1)
	}
	for i, s := range list {
		expect.Equal(t, s.file != nil, i >= readers, "segment %d is open", i)
	}
}
