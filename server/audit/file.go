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

// file is a log in a file. When the file has reached its size limit, it gets a name with the time, and a new
// file takes its place. As many old files stay as the option Keep says.
type file struct {
	o    *Options
	f    *os.File
	size int64
	mid  bool // the file ends in the middle of a line

	stays error // why the full file could not be renamed and stays in use; nil: it could
}

// outgrows returns why the file has grown beyond its size limit, and nil if it has not.
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

// torn reports whether the file ends in the middle of a line, because the disk was full or the server was
// killed. The next line must then begin on a new one.
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

// stampForm is the form of the time in the names of old files. In this form, names sort by time. Programs
// that rotate logs use other forms, so their files are left alone.
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

// turn begins a new file, and removes old ones until Keep are left. If it cannot rename the full file, it
// goes on with it: a line in a file that is too long is better than no line.
func (l *file) turn() error {
	if err := l.f.Close(); err != nil {
		return err
	}
	err := os.Rename(l.o.Name, l.o.Name+"."+l.o.Now().UTC().Format(stampForm))
	if l.stays = nil; err != nil {
		if !errors.Is(err, os.ErrNotExist) { // if it does not exist, another program has moved it away
			l.stays = err
		}
		return l.open()
	}
	own := filepath.Clean(l.o.Name) // Glob returns names in this form
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

// globbed turns a name into a pattern that matches this name alone.
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
