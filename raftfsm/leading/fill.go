package leading

import (
	"runtime"
	"runtime/trace"
	"time"

	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/stream"
)

// options returns the options of the next entry.
func (t *Term) options() (o byte) {
	if !t.o.EnforceQuota {
		o |= state.NoQuota
	}
	if t.o.NoTTL {
		o |= state.NoTTL
	}
	if t.layout.on.Load() {
		o |= state.OneLayout
	}
	if t.full.Load() {
		o |= state.Full
	}
	if t.low.Load() {
		o |= state.LowDisk
	}
	return o
}

// batch proposes the requests that arrived while the last entry was on its way: one entry is in flight, one
// is being filled. A lone request leaves at once.
func (t *Term) batch() error {
	t.working.take()
	defer t.working.give()
	size := 1 << 10
	var empty []byte // not yet given to raft
	crowd, passing := stream.NewCrowd(t.ctx), &handoff{t: t}
	for t.ctx.Err() == nil {
		if empty == nil {
			empty = make([]byte, 0, size)
		}
		t.requests = 0
		entry := t.fill(state.BeginEntry(empty, t.options()))
		if len(entry) == state.EntryHeaderSize {
			runtime.Gosched() // the replies first
			t.news.Tell()
			select {
			case <-t.ctx.Done():
				return t.ctx.Err()
			case <-t.reader:
			case <-t.work:
			}
			crowd.Gather(t.ctx)
			continue
		}
		if entry = passing.join(entry); t.ctx.Err() != nil {
			break
		}
		empty = nil
		size = min(max(1<<10, len(entry)+len(entry)/4), stream.BatchBytes)
		if short, ok := state.NameOnce(entry); ok {
			entry = short
		}
		state.SealEntry(entry, t.o.Now().UnixMilli())
		if trace.IsEnabled() {
			signal.Step("entry", "%d bytes are given to raft", len(entry))
		}
		passing.proposed()
		proposed := t.o.Raft.Apply(entry, time.Second)
		crowd.Came(t.requests)
		t.o.Measures.EntryBytes.Note(int64(len(entry)))
		t.o.Measures.StreamWaiting.Note(int64(t.o.State.Stream.Len()))
		t.working.give()
		err := proposed.Error()
		t.working.take()
		passing.applied()
		if err != nil {
			// It is unknown whether the entry commits, and it does not matter: the streams are sent again,
			// and Apply skips requests that it has seen.
			return err
		}
	}
	return t.ctx.Err()
}

// fill appends the leader's own acts and blocks of every server's stream. All servers with waiting requests
// get equal shares of the entry, so that no server's clients wait for another's. Whatever a server leaves of
// its share the others may use. The servers take turns to begin, because a request too large for any share
// takes an entry of its own.
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
	requests int // how many more fit
}

// left returns how many more bytes fit; 0 also if no more requests fit.
func (e *filling) left() int {
	if e.requests <= 0 {
		return 0
	}
	return max(stream.BatchBytes-len(e.entry), 0)
}

// own appends requests of this server's own stream.
func (e *filling) own(requests, bytes int) {
	requests, bytes = min(requests, e.requests), min(bytes, e.left())
	if requests <= 0 || bytes <= 0 {
		return
	}
	at := len(e.entry)
	grown := append(e.entry, make([]byte, state.BlockHeaderSize)...)
	bl := e.t.o.State.Stream.Take(e.t.reader, e.t.o.ID, requests, bytes, grown)
	if bl.Count == 0 {
		return
	}
	e.entry = bl.Requests
	bl.Requests = e.entry[at+state.BlockHeaderSize:]
	bl.PutHeader(e.entry[at:])
	e.t.deadlines.HeardOf(&bl)
	e.requests -= int(bl.Count)
}

// link appends whole blocks of another server's stream.
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
