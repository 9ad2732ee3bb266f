package watches

import "cmp"

// set changes the modes of record r. Only set moves records between rings and counts them. With no modes left
// the record is removed, and so is its path or connection if it was the last one there. The caller has
// removed it from big.
func (w *Table[W]) set(r uint32, now modes) {
	rec := w.records.at(r)
	was := rec.modes
	rec.modes = now
	w.count(rec, was, now)

	if was == 0 {
		w.joinConn(r)
		w.joinPath(r)
		return
	}
	if now == 0 {
		c, p := rec.conn, rec.path
		w.leavePath(r, was)
		w.leaveConn(r)
		w.records.put(r)
		if path := w.paths.at(p); path.plain == 0 && path.deep == 0 {
			w.forgetPath(p)
		}
		if conn := w.conns.at(c); conn.first == 0 && !conn.dead {
			w.byConn.remove(conn.conn)
			w.conns.put(c)
		}
		return
	}
	if (was^now)&recursiveMode != 0 {
		w.leavePath(r, was)
		w.joinPath(r)
	}
}

// count keeps the numbers of pairs, paths and connections in each registry.
func (w *Table[W]) count(rec *watch, was, now modes) {
	data := in(now, dataRegistry) - in(was, dataRegistry)
	child := in(now, childRegistry) - in(was, childRegistry)

	p := w.paths.at(rec.path)
	before := min(p.data, 1)
	p.data += uint32(data)
	w.dataPaths += int(min(p.data, 1)) - int(before)

	c := w.conns.at(rec.conn)
	if c.dead {
		return // Drop has subtracted all of its pairs
	}
	w.data += data
	w.child += child
	had := min(c.data, 1)
	c.data += data
	c.child += child
	w.dataConns += min(c.data, 1) - had
}

func in(m, registry modes) int {
	if m&registry != 0 {
		return 1
	}
	return 0
}

// ring returns the head of the ring that a record with these modes belongs to.
func (p *watchedPath) ring(m modes) *uint32 {
	if m&recursiveMode != 0 {
		return &p.deep
	}
	return &p.plain
}

// The two rings of a record.
const (
	ofPath = iota
	ofConn
)

// link is a record's place in a ring: its neighbours, or itself.
type link struct{ prev, next uint32 }

// join puts r at the end of the ring that begins at head.
func (w *Table[W]) join(head *uint32, ring int, r uint32) {
	place := &w.records.at(r).in[ring]
	if *head == 0 {
		*head, *place = r, link{prev: r, next: r}
		return
	}
	first := &w.records.at(*head).in[ring]
	*place = link{prev: first.prev, next: *head}
	w.records.at(first.prev).in[ring].next = r
	first.prev = r
}

// leave takes r out of the ring that begins at head.
func (w *Table[W]) leave(head *uint32, ring int, r uint32) {
	place := w.records.at(r).in[ring]
	if place.next == r {
		*head = 0
		return
	}
	w.records.at(place.prev).in[ring].next = place.next
	w.records.at(place.next).in[ring].prev = place.prev
	if *head == r {
		*head = place.next
	}
}

// joinPath puts r at the end of its path's ring: the connection that came first is told first.
func (w *Table[W]) joinPath(r uint32) {
	rec := w.records.at(r)
	p := w.paths.at(rec.path)
	w.join(p.ring(rec.modes), ofPath, r)
	if p.deep == r {
		w.recursive.set(p.path, rec.path)
	}
}

// leavePath takes r, which had these modes, out of its path's ring.
func (w *Table[W]) leavePath(r uint32, was modes) {
	p := w.paths.at(w.records.at(r).path)
	w.leave(p.ring(was), ofPath, r)
	if was&recursiveMode != 0 && p.deep == 0 {
		w.recursive.remove(p.path)
	}
}

// first returns the first record of the path: those that do not see below it come first.
func (p *watchedPath) first() uint32 { return cmp.Or(p.plain, p.deep) }

// after returns the record after r at its path, 0 at the end.
func (w *Table[W]) after(p *watchedPath, r uint32) uint32 {
	switch next := w.records.at(r).in[ofPath].next; next {
	case p.plain:
		return p.deep
	case p.deep:
		return 0
	default:
		return next
	}
}

func (w *Table[W]) joinConn(r uint32) {
	rec := w.records.at(r)
	c := w.conns.at(rec.conn)
	c.bytes += perWatch + perPath + len(w.paths.at(rec.path).path)
	w.join(&c.first, ofConn, r)
}

func (w *Table[W]) leaveConn(r uint32) {
	rec := w.records.at(r)
	c := w.conns.at(rec.conn)
	c.bytes -= perWatch + perPath + len(w.paths.at(rec.path).path)
	w.leave(&c.first, ofConn, r)
}

func (w *Table[W]) forgetPath(p uint32) {
	path := w.paths.at(p)
	w.pathBytes -= len(path.path)
	w.byPath.remove(path.path)
	delete(w.big, p)
	w.paths.put(p)
}

// Count returns the number of watches as ZooKeeper counts them: pairs of
// connection and path in the data registry plus those in the child registry.
// A Persistent watch counts twice.
func (w *Table[W]) Count() int { return w.data + w.child }

// Of returns the part of Count that is conn's, and about how much memory its watches would take if
// no other connection had any.
func (w *Table[W]) Of(conn W) (count, bytes int) {
	id, ok := w.byConn.m[conn]
	if !ok {
		return 0, 0
	}
	c := w.conns.at(id)
	return c.data + c.child, c.bytes
}

// Summary returns how many connections and paths the data registry has, and
// how many pairs of them.
func (w *Table[W]) Summary() (conns, paths, pairs int) {
	return w.dataConns, w.dataPaths, w.data
}

// Approximate sizes in memory, in bytes.
const (
	perWatch = 28
	perPath  = 80 // an item and its place in the map; the path itself not counted
	perConn  = 96
)

// Bytes returns about how much memory the watches take.
func (w *Table[W]) Bytes() int64 {
	return int64(w.pathBytes) + int64(w.records.used)*perWatch +
		int64(w.paths.used)*perPath + int64(w.conns.used)*perConn
}

// Scan calls f for the pairs in the data registry, path by path. It stops after the path with
// which max pairs were passed and returns where to go on; next is 0 at the end. The first call
// starts from 0. Watches may come and go between calls: a pair that is there all the time is seen
// once.
func (w *Table[W]) Scan(from uint32, max int, f func(path string, conn W)) (next uint32) {
	for p := from; p < w.paths.end(); p++ {
		path := w.paths.peek(p)
		if path == nil {
			p |= chunkSize - 1
			continue
		}
		if path.status == 0 {
			continue
		}
		if max <= 0 {
			return p
		}
		for r := path.first(); r != 0; r = w.after(path, r) {
			rec := w.records.at(r)
			if c := w.conns.at(rec.conn); !c.dead && rec.modes&dataRegistry != 0 {
				f(path.path, c.conn)
			}
			max--
		}
	}
	return 0
}

// chunkSize is how many items a slab gets and gives back at a time.
const chunkSize = 256

// slab hands out items by number. A number takes half the room of a pointer and costs the garbage
// collector nothing. Items are got in chunks, so that growing never copies; a chunk without an
// item in use is given back. 0 is never handed out and means "none".
type slab[T any] struct {
	chunks []*chunk[T]
	open   []uint32 // chunks with a free item; the last one is filled first
	used   int
}

type chunk[T any] struct {
	items [chunkSize]T
	free  [chunkSize]uint8 // a stack of the items not in use
	n     int              // its height
}

// get returns a new item, which is zero.
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

// put takes an item back.
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

// release gives a chunk back if none of its items is in use.
func (s *slab[T]) release(at uint32) {
	full := chunkSize
	if at == 0 {
		full--
	}
	if c := s.chunks[at]; c != nil && c.n == full {
		s.chunks[at] = nil
	}
}

// at returns the item. The pointer is good until the item is put back.
func (s *slab[T]) at(id uint32) *T { return &s.chunks[id/chunkSize].items[id%chunkSize] }

// end returns a number above that of every item in use.
func (s *slab[T]) end() uint32 { return uint32(len(s.chunks)) * chunkSize }

// peek returns the item if its chunk is there. The item may be out of use and
// is then zero.
func (s *slab[T]) peek(id uint32) *T {
	c := s.chunks[id/chunkSize]
	if c == nil {
		return nil
	}
	return &c.items[id%chunkSize]
}

// shrinkMap is a map that gives its room back. Go's own maps keep what they once needed; a
// shrinkMap is made again when few entries of many are left.
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
