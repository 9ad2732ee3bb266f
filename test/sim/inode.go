package sim

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
)

// inode is a file. Its size becomes durable together with its content.
type inode struct {
	dir         bool // a directory; its inode holds no content
	cache, disk content
	unsynced    []unsynced // ordered by sector number
}

// content is the bytes of a file. A sector never changes: a write puts another sector in its place. So cache,
// disk and copies can share sectors. A sector of zeros is nil.
type content struct {
	size    int
	sectors []*sector
}

type sector [Sector]byte

var zeros sector

// unsynced is a sector that was written since the last sync, with the contents that it has had since then.
type unsynced struct {
	at   int
	n    int
	held [versions]*sector
}

// clone() returns a copy that later changes do not affect.
func (c content) clone() content { return content{c.size, slices.Clone(c.sectors)} }

// resize() cuts the content, or fills new space with zeros.
func (c *content) resize(size int) {
	n := (size + Sector - 1) / Sector
	if n > len(c.sectors) {
		c.sectors = append(c.sectors, make([]*sector, n-len(c.sectors))...)
	}
	clear(c.sectors[n:])
	c.sectors = c.sectors[:n]
	if end := size % Sector; size < c.size && end != 0 {
		c.sectors[n-1] = c.sectors[n-1].upTo(end)
	}
	c.size = size
}

// upTo returns the first bytes of the sector, followed by zeros.
func (s *sector) upTo(n int) *sector {
	if s == nil {
		return nil
	}
	cut := new(sector)
	copy(cut[:n], s[:])
	return cut
}

// with() returns a copy of the sector in which b replaces the bytes at an offset.
func (s *sector) with(b []byte, at int) *sector {
	if len(b) == Sector && bytes.Equal(b, zeros[:]) {
		return nil
	}
	changed := new(sector)
	if s != nil && len(b) < Sector {
		*changed = *s
	}
	copy(changed[at:], b)
	return changed
}

// read() copies the bytes from the given offset on, and returns how many bytes it copied.
func (c content) read(b []byte, at int) int {
	n := max(0, min(len(b), c.size-at))
	for done := 0; done < n; {
		i, from := (at+done)/Sector, (at+done)%Sector
		s := c.sectors[i]
		if s == nil {
			s = &zeros
		}
		done += copy(b[done:n], s[from:])
	}
	return n
}

func (f *inode) clone() *inode {
	return &inode{f.dir, f.cache.clone(), f.disk.clone(), slices.Clone(f.unsynced)}
}

// find() returns the index of a sector in the list `unsynced`, or the index at which to insert the sector.
func (f *inode) find(at int) (int, bool) {
	return slices.BinarySearchFunc(f.unsynced, at, func(u unsynced, at int) int {
		return cmp.Compare(u.at, at)
	})
}

// write() changes the cached content.
func (f *inode) write(rng *rand.Rand, b []byte, at int) {
	if end := at + len(b); end > f.cache.size {
		f.cache.resize(end)
	}
	for i := at / Sector; len(b) > 0; i++ {
		from := at % Sector
		n := min(len(b), Sector-from)
		s := f.cache.sectors[i].with(b[:n], from)
		f.cache.sectors[i] = s
		at, b = at+n, b[n:]
		k := len(f.unsynced)
		if k > 0 && f.unsynced[k-1].at >= i {
			k, _ = f.find(i)
		}
		if k == len(f.unsynced) || f.unsynced[k].at != i {
			f.unsynced = slices.Insert(f.unsynced, k, unsynced{at: i})
		}
		u := &f.unsynced[k]
		if u.n == versions {
			u.n = rng.IntN(versions)
		}
		u.held[u.n] = s
		u.n++
	}
}

// tear() decides which of the unsynced sectors reached the disk.
func (f *inode) tear(rng *rand.Rand) {
	if f.cache.size != f.disk.size && rng.IntN(2) == 0 {
		f.disk.resize(f.cache.size)
	}
	for _, u := range f.unsynced {
		if k := rng.IntN(u.n+1) - 1; k >= 0 {
			f.put(u.at, u.held[k])
		}
	}
	f.unsynced = nil
}

// put() makes a sector durable, up to the file's durable size.
func (f *inode) put(i int, s *sector) {
	switch end := f.disk.size - i*Sector; {
	case end >= Sector || end > 0 && f.cache.size <= f.disk.size:
		f.disk.sectors[i] = s
	case end > 0:
		f.disk.sectors[i] = s.upTo(end)
	}
}

// flush() makes the file durable.
func (f *inode) flush() {
	f.disk.resize(f.cache.size)
	for _, u := range f.unsynced {
		f.put(u.at, u.held[u.n-1])
	}
	f.unsynced = f.unsynced[:0]
}

// forget() drops the cached content, so that the next read comes from the disk.
func (f *inode) forget() {
	for i := 0; i*Sector < min(f.cache.size, f.disk.size); i++ {
		if _, written := f.find(i); written {
			continue
		}
		s, was := f.disk.sectors[i], f.cache.sectors[i]
		if end := f.disk.size - i*Sector; end < Sector && f.cache.size > f.disk.size && was != nil {
			mixed := *was
			if s == nil {
				s = &zeros
			}
			copy(mixed[:end], s[:])
			s = &mixed
		}
		f.cache.sectors[i] = s
	}
}
