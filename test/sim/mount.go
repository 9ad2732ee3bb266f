package sim

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// Mount is the disk in one life of its server, from the server's start to its end.
type Mount struct {
	d *Disk
	v *view
}

var _ vfs.FS = (*Mount)(nil)

// do() calls the hook, which may block. Then it locks the disk and runs the operation, if this life has not
// ended.
func (m *Mount) do(op DiskOp, f func() error) error {
	return m.try(op, func(refused error) error {
		if refused != nil {
			return refused
		}
		return f()
	})
}

// try() is like do(), but for operations that take effect even if the hook refuses them.
func (m *Mount) try(op DiskOp, f func(refused error) error) error {
	m.d.mu.Lock()
	hook := m.d.hook
	if m.d.life != m {
		hook = nil
	}
	m.d.mu.Unlock()
	var refused error
	if hook != nil {
		refused = hook(op)
	}
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.d.trace.add(op.Kind, m.d.name, op.Name, nil)
	switch {
	case m.d.life == m:
		return f(refused)
	case m.d.ghosts:
		return f(nil)
	}
	return ErrOff
}

// change() records a change of names; the caller holds the disk's lock.
func (m *Mount) change(list ...naming) {
	v := m.v
	id := 0
	if n := len(v.changes); n > 0 {
		id = v.changes[n-1].id + 1
	}
	for _, c := range list {
		c.id = id
		v.changes = append(v.changes, c)
		if c.to == nil {
			delete(v.names, c.name)
		} else {
			v.names[c.name] = c.to
		}
	}
}

func fail(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// Create implements vfs.FS.
func (m *Mount) Create(name string) (file vfs.File, err error) {
	err = m.do(DiskOp{Kind: "create", Name: name}, func() error {
		if m.v.names[name] != nil {
			return fail("create", name, fs.ErrExist)
		}
		f := new(inode)
		m.change(naming{name: name, to: f})
		file = &handle{m, f, name, false}
		return nil
	})
	return file, err
}

// Open implements vfs.FS.
func (m *Mount) Open(name string) (file vfs.File, err error) {
	err = m.do(DiskOp{Kind: "open", Name: name}, func() error {
		f := m.v.names[name]
		if f == nil || f.dir {
			return fail("open", name, fs.ErrNotExist)
		}
		file = &handle{m, f, name, false}
		return nil
	})
	return file, err
}

// Rename implements vfs.FS.
func (m *Mount) Rename(from, to string) error {
	return m.do(DiskOp{Kind: "rename", Name: to}, func() error {
		f := m.v.names[from]
		if f == nil {
			return fail("rename", from, fs.ErrNotExist)
		}
		m.change(naming{name: from}, naming{name: to, to: f})
		return nil
	})
}

// Remove implements vfs.FS.
func (m *Mount) Remove(name string) error {
	return m.do(DiskOp{Kind: "remove", Name: name}, func() error {
		if m.v.names[name] == nil {
			return fail("remove", name, fs.ErrNotExist)
		}
		m.change(naming{name: name})
		return nil
	})
}

// List implements vfs.FS.
func (m *Mount) List(dir string) (list []string, err error) {
	err = m.do(DiskOp{Kind: "list", Name: dir}, func() error {
		for name := range m.v.names {
			if rest, ok := strings.CutPrefix(name, strings.TrimSuffix(path.Clean(dir), "/")+"/"); ok &&
				!strings.Contains(rest, "/") {
				list = append(list, rest)
			}
		}
		return nil
	})
	slices.Sort(list)
	return list, err
}

// MkdirAll implements vfs.FS. Other operations do not need the directories. A power loss can remove a new
// directory whose parent is not synced.
func (m *Mount) MkdirAll(dir string) error {
	return m.do(DiskOp{Kind: "mkdir", Name: dir}, func() error {
		var list []string
		for dir = path.Clean(dir); len(dir) > 1 && m.v.names[dir] == nil; dir = path.Dir(dir) {
			list = append(list, dir)
		}
		for _, name := range slices.Backward(list) {
			m.change(naming{name: name, to: &inode{dir: true}})
		}
		return nil
	})
}

// SyncDir implements vfs.FS.
func (m *Mount) SyncDir(dir string) error {
	return m.do(DiskOp{Kind: "syncdir", Name: dir}, func() error {
		dir = path.Clean(dir)
		m.v.changes = slices.DeleteFunc(m.v.changes, func(c naming) bool {
			here := path.Dir(c.name) == dir
			if here {
				m.v.publish(c)
			}
			return here
		})
		return nil
	})
}

// handle is an open file of a Mount.
type handle struct {
	m      *Mount
	f      *inode
	name   string
	closed bool
}

func (h *handle) Name() string { return h.name }

// Close implements vfs.File.
func (h *handle) Close() error {
	h.m.d.mu.Lock()
	defer h.m.d.mu.Unlock()
	if h.closed {
		return fail("close", h.name, fs.ErrClosed)
	}
	h.closed = true
	return nil
}

// look() runs f on the file without changing it.
func (h *handle) look(f func() error) error {
	h.m.d.mu.Lock()
	defer h.m.d.mu.Unlock()
	switch {
	case h.m.d.life != h.m && !h.m.d.ghosts:
		return ErrOff
	case h.closed:
		return fail("read", h.name, fs.ErrClosed)
	}
	return f()
}

// Size implements vfs.File.
func (h *handle) Size() (size int64, err error) {
	err = h.look(func() error { size = int64(h.f.cache.size); return nil })
	return size, err
}

// ReadAt implements vfs.File.
func (h *handle) ReadAt(b []byte, at int64) (n int, err error) {
	err = h.m.do(DiskOp{Kind: "read", Name: h.name, Len: len(b)}, func() error {
		if h.closed {
			return fail("read", h.name, fs.ErrClosed)
		}
		n = h.f.cache.read(b, int(at))
		if hook := h.m.d.reads; hook != nil && h.m.d.life == h.m {
			if err := hook(h.name, b[:n]); err != nil {
				n = 0
				return fail("read", h.name, err)
			}
		}
		if n < len(b) {
			return io.EOF
		}
		return nil
	})
	return n, err
}

// WriteAt implements vfs.File.
func (h *handle) WriteAt(b []byte, at int64) (n int, err error) {
	err = h.m.try(DiskOp{Kind: "write", Name: h.name, Len: len(b)}, func(refused error) error {
		if h.closed {
			return fail("write", h.name, fs.ErrClosed)
		}
		var short *ShortWrite
		switch {
		case errors.As(refused, &short):
			n := min(short.N, len(b))
			if at+int64(n) < int64(h.f.cache.size) { // a write into existing content must end between two sectors
				n = max(0, (int(at)+n)/Sector*Sector-int(at))
			}
			b = b[:n]
		case refused != nil:
			return refused
		}
		if more := at + int64(len(b)) - int64(h.f.cache.size); more > 0 {
			if missing := h.m.v.used() + more - h.m.d.capacity; missing > 0 {
				b = b[:max(0, int64(len(b))-missing)]
				refused = fail("write", h.name, syscall.ENOSPC)
			}
		}
		h.m.d.trace.add("disk", h.m.d.name, h.name, b)
		h.f.write(h.m.d.rng, b, int(at))
		n = len(b)
		return refused
	})
	return n, err
}

// Sync implements vfs.File. After a failed sync the disk may have the data or not, and no later sync writes
// them.
func (h *handle) Sync() error {
	return h.m.try(DiskOp{Kind: "sync", Name: h.name}, func(refused error) error {
		switch {
		case h.closed:
			return fail("sync", h.name, fs.ErrClosed)
		case refused != nil:
			h.f.tear(h.m.d.rng)
			return refused
		}
		h.f.flush()
		return nil
	})
}

// Datasync implements vfs.File.
func (h *handle) Datasync() error { return h.Sync() }

// Forget implements vfs.File.
func (h *handle) Forget() error {
	return h.look(func() error {
		h.f.forget()
		return nil
	})
}
