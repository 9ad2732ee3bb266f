package rest

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// epoll is a Poller for plain TCP connections. The epoll has a descriptor of its own. Go's poller watches
// that descriptor, so that no thread is blocked while the epoll waits.
type epoll struct {
	file   *os.File
	raw    syscall.RawConn
	events [128]syscall.EpollEvent
	found  int
	err    error
	waits  func(fd uintptr) bool
	n      int
	buf    []byte
	reads  func(fd uintptr) bool
}

// arrivals is what epoll reports: bytes that arrive, and the end of a connection. It reports each only once,
// until more arrives.
const arrivals = syscall.EPOLLIN | syscall.EPOLLRDHUP | 1<<31 // 1<<31 is EPOLLET

// newPoller returns nil if the system has no poller for this process.
func newPoller() Poller {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return nil
	}
	p := &epoll{file: os.NewFile(uintptr(fd), "epoll")}
	if p.raw, err = p.file.SyscallConn(); err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // a test: it fails if Go's poller cannot watch the descriptor
	}
	if err != nil {
		p.file.Close()
		return nil
	}
	p.waits, p.reads = p.tryWait, p.tryRead
	return p
}

// Takes implements Poller.
func (p *epoll) Takes(c Sleeper) bool { return c.Raw() != nil }

// Add implements Poller.
func (p *epoll) Add(c Sleeper, slot uint32) error {
	return p.control(c, syscall.EPOLL_CTL_ADD, &syscall.EpollEvent{Events: arrivals, Fd: int32(slot)})
}

// Remove implements Poller.
func (p *epoll) Remove(c Sleeper) { _ = p.control(c, syscall.EPOLL_CTL_DEL, nil) }

// control calls epoll_ctl. It keeps both descriptors open until the call has returned.
func (p *epoll) control(c Sleeper, op int, e *syscall.EpollEvent) (err error) {
	closed := c.Raw().Control(func(fd uintptr) {
		if e := p.raw.Control(func(ep uintptr) { err = syscall.EpollCtl(int(ep), op, int(fd), e) }); e != nil {
			err = e
		}
	})
	if closed != nil {
		return closed
	}
	return err
}

// Wait implements Poller.
func (p *epoll) Wait(buf []Arrival) (n int, err error) {
	if err := p.raw.Read(p.waits); err != nil || p.err != nil {
		return 0, os.ErrClosed
	}
	for i := range p.events[:p.found] {
		e := &p.events[i]
		buf[i] = Arrival{uint32(e.Fd), e.Events&^syscall.EPOLLIN != 0}
	}
	return p.found, nil
}

// tryWait returns false if nothing has arrived. Go's poller then waits.
func (p *epoll) tryWait(fd uintptr) bool {
	for {
		p.found, p.err = syscall.EpollWait(int(fd), p.events[:], 0)
		if !errors.Is(p.err, syscall.EINTR) {
			return p.found != 0
		}
	}
}

// Read implements Poller.
func (p *epoll) Read(c Sleeper, b []byte) (n int, err error) {
	p.buf = b
	if err := c.Raw().Read(p.reads); err != nil {
		return 0, err
	}
	switch {
	case errors.Is(p.err, syscall.EAGAIN):
		return 0, nil
	case p.err != nil:
		return 0, os.NewSyscallError("read", p.err)
	case p.n == 0:
		return 0, io.EOF
	}
	return p.n, nil
}

func (p *epoll) tryRead(fd uintptr) bool {
	for {
		if p.n, p.err = syscall.Read(int(fd), p.buf); !errors.Is(p.err, syscall.EINTR) {
			return true
		}
	}
}

// Close implements Poller.
func (p *epoll) Close() { p.file.Close() }
