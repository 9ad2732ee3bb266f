package leading

import (
	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/stream"
)

// options returns the options of the next entry.
func (t *Term) options() (o byte) {
	if !t.o.EnforceQuota {
		o |= entries.NoQuota
	}
	if t.o.NoTTL {
		o |= entries.NoTTL
	}
	if t.layout.on.Load() {
		o |= entries.OneLayout
	}
	if t.full.Load() {
		o |= entries.Full
	}
	if t.low.Load() {
		o |= entries.LowDisk
	}
	return o
}

// fill() appends the leader's own acts and blocks of every server's stream. All servers with waiting requests
// get equal shares of the entry, so that the clients of one server do not wait for those of another. If a
// server does not use all of its share, other servers use the rest. The servers take turns to be first: if
// the first server's request is too large for any share, it takes the whole entry, and the other servers wait
// for the next one.
func (t *Term) fill(entry []byte) []byte {
	before := len(entry)
	entry, more := t.acts.take(entry)
	if more {
		t.wake()
	}
	if len(entry) > before {
		t.news.All()
	}
	e := filling{t: t, entry: entry, requests: stream.BatchRequests}
	links := t.links.Waiting()
	sources := 1 + len(links)
	t.turn++
	for _, shares := range []int{sources, 1} {
		for i := range sources {
			if who := (t.turn + i) % sources; who == 0 {
				e.own(stream.BatchRequests/shares, stream.BatchBytes/shares)
			} else {
				e.link(links[who-1], stream.BatchRequests/shares, stream.BatchBytes/shares)
			}
		}
		if sources == 1 {
			break
		}
	}
	t.requests += stream.BatchRequests - e.requests
	return e.entry
}

// filling is an entry being filled.
type filling struct {
	t        *Term
	entry    []byte
	requests int // how many more requests fit
}

// left() returns how many more bytes fit. It returns 0 if the number of requests is at its limit.
func (e *filling) left() int {
	if e.requests <= 0 {
		return 0
	}
	return max(stream.BatchBytes-len(e.entry), 0)
}

// own() appends requests of this server's own stream.
func (e *filling) own(requests, bytes int) {
	requests, bytes = min(requests, e.requests), min(bytes, e.left())
	if requests <= 0 || bytes <= 0 {
		return
	}
	at := len(e.entry)
	grown := append(e.entry, make([]byte, entries.BlockHeaderSize)...)
	bl := e.t.o.State.Stream.Take(e.t.reader, e.t.o.ID, requests, bytes, grown)
	if bl.Count == 0 {
		return
	}
	e.entry = bl.Requests
	bl.Requests = e.entry[at+entries.BlockHeaderSize:]
	bl.PutHeader(e.entry[at:])
	e.t.deadlines.HeardOf(&bl)
	e.requests -= int(bl.Count)
}

// link() appends whole blocks of another server's stream.
func (e *filling) link(l *followers.Link, requests, bytes int) {
	for requests > 0 && bytes > 0 && e.left() > 0 {
		bl, ok := l.Pop()
		if !ok {
			return
		}
		if bl.Birth != 0 {
			e.t.deadlines.HeardOf(&bl)
		}
		e.t.news.Asked(bl.Origin)
		e.entry = bl.Append(e.entry)
		e.requests -= int(bl.Count)
		requests -= int(bl.Count)
		bytes -= len(bl.Requests)
	}
}
