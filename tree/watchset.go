package tree

// set gives record r other modes: the one place where records enter and leave
// their rings and where everything is counted. With no modes left the record
// goes, and so does its path or its connection if it was their last. The
// caller has taken it out of big.
func (w *Watches[W]) set(r uint32, now modes) {
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
func (w *Watches[W]) count(rec *watch, was, now modes) {
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

// joinPath puts r at the end of its path's ring: the connection that came first is told first.
func (w *Watches[W]) joinPath(r uint32) {
	rec := w.records.at(r)
	p := w.paths.at(rec.path)
	head := p.ring(rec.modes)
	if *head == 0 {
		*head, rec.pathPrev, rec.pathNext = r, r, r
		if head == &p.deep {
			w.recursive.set(p.path, rec.path)
		}
		return
	}
	first := w.records.at(*head)
	rec.pathPrev, rec.pathNext = first.pathPrev, *head
	w.records.at(rec.pathPrev).pathNext = r
	first.pathPrev = r
}

// leavePath takes r, which had these modes, out of its path's ring.
func (w *Watches[W]) leavePath(r uint32, was modes) {
	rec := w.records.at(r)
	p := w.paths.at(rec.path)
	head := p.ring(was)
	if rec.pathNext == r {
		*head = 0
		if head == &p.deep {
			w.recursive.remove(p.path)
		}
		return
	}
	w.records.at(rec.pathPrev).pathNext = rec.pathNext
	w.records.at(rec.pathNext).pathPrev = rec.pathPrev
	if *head == r {
		*head = rec.pathNext
	}
}

func (w *Watches[W]) joinConn(r uint32) {
	rec := w.records.at(r)
	c := w.conns.at(rec.conn)
	c.bytes += perWatch + perPath + len(w.paths.at(rec.path).path)
	if c.first == 0 {
		c.first, rec.connPrev, rec.connNext = r, r, r
		return
	}
	first := w.records.at(c.first)
	rec.connPrev, rec.connNext = first.connPrev, c.first
	w.records.at(rec.connPrev).connNext = r
	first.connPrev = r
}

func (w *Watches[W]) leaveConn(r uint32) {
	rec := w.records.at(r)
	c := w.conns.at(rec.conn)
	c.bytes -= perWatch + perPath + len(w.paths.at(rec.path).path)
	if rec.connNext == r {
		c.first = 0
		return
	}
	w.records.at(rec.connPrev).connNext = rec.connNext
	w.records.at(rec.connNext).connPrev = rec.connPrev
	if c.first == r {
		c.first = rec.connNext
	}
}

func (w *Watches[W]) forgetPath(p uint32) {
	path := w.paths.at(p)
	w.pathBytes -= len(path.path)
	w.byPath.remove(path.path)
	delete(w.big, p)
	w.paths.put(p)
}

// Count returns the number of watches as ZooKeeper counts them: pairs of
// connection and path in the data registry plus those in the child registry.
// A Persistent watch counts twice.
func (w *Watches[W]) Count() int { return w.data + w.child }

// Of returns the part of Count that is conn's, and about how much memory its watches would take if
// no other connection had any.
func (w *Watches[W]) Of(conn W) (count, bytes int) {
	id, ok := w.byConn.m[conn]
	if !ok {
		return 0, 0
	}
	c := w.conns.at(id)
	return c.data + c.child, c.bytes
}

// Summary returns how many connections and paths the data registry has, and
// how many pairs of them.
func (w *Watches[W]) Summary() (conns, paths, pairs int) {
	return w.dataConns, w.dataPaths, w.data
}

// What things take in memory, about, in bytes.
const (
	perWatch = 28
	perPath  = 80 // an item and its place in the map; the path itself not counted
	perConn  = 96
)

// Bytes returns about how much memory the watches take.
func (w *Watches[W]) Bytes() int64 {
	return int64(w.pathBytes) + int64(w.records.used)*perWatch +
		int64(w.paths.used)*perPath + int64(w.conns.used)*perConn
}

// Scan calls f for the pairs in the data registry, path by path. It stops after the path with
// which max pairs were passed and returns where to go on; next is 0 at the end. The first call
// starts from 0. Watches may come and go between calls: a pair that is there all the time is seen
// once.
func (w *Watches[W]) Scan(from uint32, max int, f func(path string, conn W)) (next uint32) {
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
		for _, head := range [2]uint32{path.plain, path.deep} {
			for r := head; r != 0; {
				rec := w.records.at(r)
				if c := w.conns.at(rec.conn); !c.dead && rec.modes&dataRegistry != 0 {
					f(path.path, c.conn)
				}
				max--
				if r = rec.pathNext; r == head {
					break
				}
			}
		}
	}
	return 0
}

// PathsOf calls f for the paths conn has in the data registry.
func (w *Watches[W]) PathsOf(conn W, f func(path string)) {
	id, ok := w.byConn.m[conn]
	if !ok {
		return
	}
	head := w.conns.at(id).first
	for r := head; r != 0; {
		rec := w.records.at(r)
		if rec.modes&dataRegistry != 0 {
			f(w.paths.at(rec.path).path)
		}
		if r = rec.connNext; r == head {
			break
		}
	}
}
