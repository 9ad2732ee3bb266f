package seglog

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// readers is how many segments stay open only to be read. A log may have hundreds.
const readers = 4

// files opens segments to read them and bounds how many are open.
type files struct {
	fs   vfs.FS
	mu   sync.Mutex
	idle []*segment // open and not in use, the longest unused first
}

// errGone says that the log has dropped a segment that a reader was about to read.
var errGone = errors.New("the segment is no longer part of the log")

// use runs f with the segment's file. No lock is held while the file is opened and f runs: a disk
// that hangs holds up this reader alone.
func (p *files) use(s *segment, f func(vfs.File) error) error {
	p.mu.Lock()
	if s.users++; s.users == 1 {
		p.idle = slices.DeleteFunc(p.idle, func(o *segment) bool { return o == s })
	}
	file := s.file
	p.mu.Unlock()
	defer p.release(s)
	if file == nil {
		mine, err := p.fs.Open(s.name)
		p.mu.Lock()
		if err == nil && s.file == nil && !s.gone {
			s.file, mine = mine, nil
		}
		file = s.file
		p.mu.Unlock()
		if mine != nil {
			mine.Close() // it was only to be read
		}
		if file == nil {
			return cmp.Or(err, errGone)
		}
	}
	return f(file)
}

// release ends one use. The log itself uses the segment it writes to.
func (p *files) release(s *segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.users--; s.users > 0 || s.file == nil {
		return
	}
	p.idle = append(p.idle, s)
	if len(p.idle) > readers {
		old := p.idle[0]
		p.idle = p.idle[1:]
		old.file.Close() // it was only read
		old.file = nil
	}
}

// close closes the file of a segment that leaves the log. A read that is under way fails.
func (p *files) close(s *segment) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.gone = true
	p.idle = slices.DeleteFunc(p.idle, func(o *segment) bool { return o == s })
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}

// dropped reports whether a segment has left the log.
func (p *files) dropped(s *segment) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.gone
}

// withFile runs f with a file that is open for so long.
func withFile(fs vfs.FS, name string, f func(vfs.File) error) error {
	file, err := fs.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f(file), file.Close())
}
