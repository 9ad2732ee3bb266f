package sim

import (
	"errors"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
)

// Sector is the unit that the disk writes completely or not at all.
const Sector = 512

// versions is how many contents of a sector the disk remembers between two syncs.
const versions = 4

// DiskOp is an operation that is about to run.
type DiskOp struct {
	// one of create, open, read, rename, remove, write, sync, list, mkdir, syncdir, set (a key of the store)
	Kind string
	Name string
	Len  int // bytes of a read or a write
}

// Changes reports whether an operation changes the content of the disk, or may change it.
func (o DiskOp) Changes() bool {
	return !slices.Contains([]string{"open", "read", "list"}, o.Kind)
}

// ShortWrite is the error that a hook returns to let only the first N bytes of a write pass. If the write
// ends inside the existing file, the disk rounds the end of the write down to a sector boundary.
type ShortWrite struct {
	N   int
	Err error
}

func (s *ShortWrite) Error() string { return s.Err.Error() }
func (s *ShortWrite) Unwrap() error { return s.Err }

// ErrOff is what operations return after the life of the disk has ended, unless LeaveGhosts was called.
var ErrOff = errors.New("the disk has lost its power")

// Disk is a disk that behaves as badly as a real one may. It keeps cached content apart from durable
// content, sector by sector. When the power goes, every sector written since the last sync holds its old
// content or any content written since. Every change of a name since the last sync of its directory is
// either kept or lost; a lost directory takes its content along. A failed sync drops what it should have
// written, and a later sync does not write it. Space can end at any byte, and a hook can refuse, delay or
// block every operation.
type Disk struct {
	mu       sync.Mutex
	rng      *rand.Rand
	now      *view
	life     *Mount // nil: no life has begun since the last one ended
	ghosts   bool
	capacity int64
	hook     func(DiskOp) error
	reads    func(name string, b []byte) error
	trace    *Trace
	name     string // the disk's name in the trace
}

// view is what a server sees of the disk in one life, from its start to its end.
type view struct {
	names   map[string]*inode // the names in the cache
	stable  map[string]*inode // the durable names
	changes []naming          // changes of names whose directories were not synced since
	keys    map[string][]byte // the content of the key store
}

func newView() *view {
	return &view{names: map[string]*inode{}, stable: map[string]*inode{}, keys: map[string][]byte{}}
}

// NewDisk returns an empty disk.
func NewDisk(rng *rand.Rand) *Disk { return &Disk{rng: rng, now: newView(), capacity: 1 << 50} }

// LeaveGhosts lets a server whose life has ended go on with its own copy of the disk. So that server no
// longer affects the disk of later lives.
func (d *Disk) LeaveGhosts() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ghosts = true
}

// naming is a change of a name: the name is given to the file `to`. If `to` is nil, the name is removed.
type naming struct {
	id   int // equal for the two halves of a rename
	name string
	to   *inode
}

// OnOp installs a hook. Before every operation that changes something or opens or reads a file, the disk
// calls the hook. It holds no locks during the call.
func (d *Disk) OnOp(hook func(DiskOp) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook = hook
}

// OnRead installs a hook that sees the bytes of each read of a file. It may change the bytes, or refuse the
// read. The disk is locked during the call. What is on the disk stays as it is. nil removes the hook.
func (d *Disk) OnRead(hook func(name string, b []byte) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads = hook
}

// Limit bounds the total bytes of all files.
func (d *Disk) Limit(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = bytes
}

// Used returns the total bytes of all files.
func (d *Disk) Used() (n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now.used()
}

// Free returns how many more bytes the files may use.
func (d *Disk) Free() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(0, d.capacity-d.now.used())
}

func (v *view) used() (n int64) {
	for _, f := range v.names {
		n += int64(f.cache.size)
	}
	return n
}

// Mount begins a life of the server, from its start to its end. It ends the previous life, if any, as kill -9
// does: cached content stays.
func (d *Disk) Mount() *Mount {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life != nil {
		d.now = d.now.clone()
	}
	d.life = &Mount{d: d, v: d.now}
	return d.life
}

// PowerLoss ends the server's present life. The disk loses all data that was not durable, or any part of it.
func (d *Disk) PowerLoss() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.life = d.now.clone(), nil
	d.now.lose(d.rng)
}

// Kill ends the server's present life as kill -9 does.
func (d *Disk) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.life = d.now.clone(), nil
}

// clone() returns a view that shares nothing with this one.
func (v *view) clone() *view {
	was := map[*inode]*inode{nil: nil}
	copied := func(f *inode) *inode {
		c, ok := was[f]
		if !ok {
			c = f.clone()
			was[f] = c
		}
		return c
	}
	c := newView()
	c.keys = maps.Clone(v.keys)
	for name, f := range v.names {
		c.names[name] = copied(f)
	}
	for name, f := range v.stable {
		c.stable[name] = copied(f)
	}
	for _, ch := range v.changes {
		ch.to = copied(ch.to)
		c.changes = append(c.changes, ch)
	}
	return c
}

// lose() decides which data were durable. Of the changes of names it keeps either the first ones, as a
// journal does, or any selection.
func (v *view) lose(rng *rand.Rand) {
	made := map[string]bool{}
	for name, f := range v.names {
		made[name] = f.dir
	}
	inOrder := rng.IntN(2) == 0
	kept, last := false, -1
	for _, c := range v.changes {
		if c.id != last {
			keep := rng.IntN(2) == 0
			kept = keep && (kept || last < 0 || !inOrder)
			last = c.id
		}
		if kept {
			v.publish(c)
		}
	}
	v.changes = nil
	// A lost directory takes its content along. A directory that no server has made was always there, and cannot
	// be lost.
	for name := range v.stable {
		for dir := path.Dir(name); len(dir) > 1; dir = path.Dir(dir) {
			if made[dir] && v.stable[dir] == nil {
				delete(v.stable, name)
			}
		}
	}
	v.names = map[string]*inode{}
	for _, name := range slices.Sorted(maps.Keys(v.stable)) {
		f := v.stable[name]
		f.tear(rng)
		f.cache = f.disk.clone()
		v.names[name] = f
	}
}

// publish() makes a change durable.
func (v *view) publish(c naming) {
	if c.to == nil {
		delete(v.stable, c.name)
	} else {
		v.stable[c.name] = c.to
	}
}
