package leading

import (
	"runtime"
	"runtime/trace"
	"time"

	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/stream"
)

// batch() proposes the requests that arrived while the last entry was on its way: one entry is in flight, one
// is being filled. A lone request leaves at once.
func (t *Term) batch() error {
	t.working.take()
	defer t.working.give()
	size := 1 << 10
	var empty []byte // the buffer of the next entry; raft keeps the buffer of each entry that it gets
	crowd, passing := stream.NewCrowd(t.ctx), &handoff{t: t}
	for t.ctx.Err() == nil {
		if empty == nil {
			empty = make([]byte, 0, size)
		}
		t.requests = 0
		entry := t.fill(entries.Begin(empty, t.options()))
		if len(entry) == entries.HeaderSize {
			runtime.Gosched() // let the goroutines that send replies run first
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
		if short, ok := entries.NameOnce(entry); ok {
			entry = short
		}
		entries.Seal(entry, t.o.Now().UnixMilli())
		if trace.IsEnabled() {
			signal.Step("entry", "an entry of %d bytes is given to raft", len(entry))
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
