package audit

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// opener returns the function that opens a log.
func opener(o *Options) func() (io.WriteCloser, error) {
	switch o.Name {
	case "stderr":
		return func() (io.WriteCloser, error) { return stderr{}, nil }
	case "syslog":
		return openSyslog
	}
	return func() (io.WriteCloser, error) {
		f := &file{o: o}
		return f, f.open()
	}
}

// file is a log in a file. When the file reaches the size in the options, the time is added to its name, and
// a new file takes its place. The newest old files stay; the option Keep says how many.
type file struct {
	o    *Options
	f    *os.File
	size int64
	mid  bool // the file ends in the middle of a line

	stays error // why the file could not be replaced at its size limit; nil: nothing is wrong
}

// outgrows returns why the file exceeds its size limit, or nil.
func (l *file) outgrows() error { return l.stays }

func (l *file) open() (err error) {
	if l.f, err = os.OpenFile(l.o.Name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	l.size = 0
	if info, err := l.f.Stat(); err == nil && info.Mode().IsRegular() {
		l.size = info.Size()
	}
	l.mid = l.size > 0 && l.torn()
	return nil
}

// torn reports whether the file ends in the middle of a line: the disk was full, or the server was killed.
// The next line must not become a part of the cut line.
func (l *file) torn() bool {
	f, err := os.Open(l.o.Name)
	if err != nil {
		return false
	}
	defer f.Close()
	var last [1]byte
	_, err = f.ReadAt(last[:], l.size-1)
	return err == nil && last[0] != '\n'
}

// stampForm is the form of the time in the name of an old file. Sorted names are in the order of their times.
// Programs that rotate logs use names of another form.
const stampForm = "20060102T150405.000000000"

func (l *file) Write(b []byte) (int, error) {
	if l.o.Size > 0 && l.size > 0 && l.size+int64(len(b)) > l.o.Size {
		if err := l.turn(); err != nil {
			return 0, err
		}
	}
	if l.mid {
		if _, err := l.f.Write([]byte("\n")); err != nil {
			return 0, err
		}
		l.size, l.mid = l.size+1, false
	}
	n, err := l.f.Write(b)
	l.size += int64(n)
	return n, err
}

// turn begins a new file, and removes the oldest files until Keep old files are left. If the directory does
// not allow that, the log continues in the old file, because a line in a long file is better than no line.
func (l *file) turn() error {
	if err := l.f.Close(); err != nil {
		return err
	}
	err := os.Rename(l.o.Name, l.o.Name+"."+l.o.Now().UTC().Format(stampForm))
	if l.stays = nil; err != nil {
		if !errors.Is(err, os.ErrNotExist) { // otherwise another program has moved the file away
			l.stays = err
		}
		return l.open()
	}
	own := filepath.Clean(l.o.Name) // in the form of the names that Glob returns
	old, err := filepath.Glob(globbed(own) + ".[0-9]*T*.*")
	if err == nil {
		old = slices.DeleteFunc(old, func(name string) bool {
			_, err := time.Parse(stampForm, name[len(own)+1:])
			return err != nil
		})
		slices.Sort(old)
		for _, name := range old[:max(0, len(old)-l.o.Keep)] {
			_ = os.Remove(name)
		}
	}
	return l.open()
}

// globbed returns a pattern that matches only the given name.
func globbed(name string) string {
	var b []byte
	for _, c := range []byte(name) {
		if c == '*' || c == '?' || c == '[' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return string(b)
}

func (l *file) Close() error {
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}
