package tree

// WatchersAt calls f for up to most of the connections that wait for something
// at exactly this path, the first to come first.
func (w *Watches[W]) WatchersAt(path string, most int, f func(W)) {
	p, ok := w.byPath.m[path]
	if !ok {
		return
	}
	at := w.paths.at(p)
	for _, head := range [2]uint32{at.plain, at.deep} {
		for r := head; r != 0 && most > 0; {
			rec := w.records.at(r)
			if c := w.conns.at(rec.conn); !c.dead {
				f(c.conn)
				most--
			}
			if r = rec.pathNext; r == head {
				break
			}
		}
	}
}
