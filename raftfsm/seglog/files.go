package seglog

import (
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

// use runs f with the segment's file.
func (p *files) use(s *segment, f func(vfs.File) error) error {
	p.mu.Lock()
	if s.file == nil {
		file, err := p.fs.Open(s.name)
		if err != nil {
			p.mu.Unlock()
			return err
		}
		s.file = file
	}
	if s.users++; s.users == 1 {
		p.idle = slices.DeleteFunc(p.idle, func(o *segment) bool { return o == s })
	}
	file := s.file
	p.mu.Unlock()
	err := f(file)
	p.release(s)
	return err
}

// release ends one use. The log itself uses the segment it writes to.
func (p *files) release(s *segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.users--; s.users > 0 {
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

// close closes a segment's file, which must no longer be in use.
func (p *files) close(s *segment) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = slices.DeleteFunc(p.idle, func(o *segment) bool { return o == s })
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}
