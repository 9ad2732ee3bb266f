package watches

// chunkSize is how many items a slab gets and gives back at a time.
const chunkSize = 256

// slab hands out items by number. A number takes half the room of a pointer and costs the garbage collector
// nothing. A slab allocates items in chunks, so that growing never copies, and frees a chunk without an item
// in use. 0 is never handed out and means "none".
type slab[T any] struct {
	chunks []*chunk[T]
	open   []uint32 // chunks with a free item; the last one is filled first
	used   int
}

type chunk[T any] struct {
	items [chunkSize]T
	free  [chunkSize]uint8 // a stack of the items not in use
	n     int              // number of items in free
}

// get() returns a new item, which is zero.
func (s *slab[T]) get() uint32 {
	if len(s.open) == 0 {
		s.open = append(s.open, uint32(len(s.chunks)))
		s.chunks = append(s.chunks, nil)
	}
	at := s.open[len(s.open)-1]
	c := s.chunks[at]
	if c == nil {
		c = new(chunk[T])
		for i := range chunkSize {
			c.free[i] = uint8(chunkSize - 1 - i)
		}
		c.n = chunkSize
		if at == 0 {
			c.n-- // item 0 is never given
		}
		s.chunks[at] = c
	}
	c.n--
	if c.n == 0 {
		s.open = s.open[:len(s.open)-1]
	}
	s.used++
	return at*chunkSize + uint32(c.free[c.n])
}

// put() takes an item back.
func (s *slab[T]) put(id uint32) {
	at := id / chunkSize
	c := s.chunks[at]
	var zero T
	c.items[id%chunkSize] = zero
	c.free[c.n] = uint8(id % chunkSize)
	c.n++
	s.used--
	// Keep the chunk that is being filled even if it is empty; otherwise a single item that comes and goes
	// would allocate and free a chunk each time.
	last := len(s.open) - 1
	switch {
	case c.n == 1:
		if last >= 0 {
			s.release(s.open[last])
		}
		s.open = append(s.open, at)
	case s.open[last] != at:
		s.release(at)
	}
}

// release() gives a chunk back if none of its items is in use.
func (s *slab[T]) release(at uint32) {
	full := chunkSize
	if at == 0 {
		full--
	}
	if c := s.chunks[at]; c != nil && c.n == full {
		s.chunks[at] = nil
	}
}

// at() returns the item. The pointer is good until the item is put back.
func (s *slab[T]) at(id uint32) *T { return &s.chunks[id/chunkSize].items[id%chunkSize] }

// end() returns a number above that of every item in use.
func (s *slab[T]) end() uint32 { return uint32(len(s.chunks)) * chunkSize }

// peek() returns the item if its chunk is there. The item may be out of use and
// is then zero.
func (s *slab[T]) peek(id uint32) *T {
	c := s.chunks[id/chunkSize]
	if c == nil {
		return nil
	}
	return &c.items[id%chunkSize]
}

// shrinkMap is a map that frees memory. Go's own maps keep the memory that they once needed. A shrinkMap
// moves to a new, smaller map when only a few of many entries are left.
type shrinkMap[K comparable] struct {
	m    map[K]uint32
	peak int
}

const (
	shrinkMany = 1 << 16
	shrinkFew  = 1 << 10
)

func (s *shrinkMap[K]) set(k K, id uint32) {
	if s.m == nil {
		s.m = map[K]uint32{}
	}
	s.m[k] = id
	s.peak = max(s.peak, len(s.m))
}

func (s *shrinkMap[K]) remove(k K) {
	delete(s.m, k)
	if s.peak < shrinkMany || len(s.m) > shrinkFew {
		return
	}
	m := make(map[K]uint32, len(s.m))
	for k, id := range s.m {
		m[k] = id
	}
	s.m, s.peak = m, len(m)
}
