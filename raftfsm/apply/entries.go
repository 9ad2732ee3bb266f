package apply

import (
	"context"
	"fmt"
	"runtime/trace"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// Apply implements raft.FSM.
func (f *FSM) Apply(l *raft.Log) any {
	if f.dead.Load() || l.Type != raft.LogCommand {
		return nil
	}
	onDisk := trace.StartRegion(context.Background(), "wait until the entry is on the disk")
	if err := f.o.Durable(l.Index); err != nil {
		f.dead.Store(true) // no stop(): the disk has reported the error already, or the server is closing
		return nil
	}
	onDisk.End()
	began, before := time.Now(), f.counted.requests.Load()
	f.mu.Lock()
	applying := trace.StartRegion(context.Background(), "apply")
	if trace.IsEnabled() {
		signal.Step("entry", "entry %d is applied", l.Index)
	}
	err := f.state.Apply(l.Data, (*sink)(f))
	applying.End()
	f.zxid.Store(f.state.Zxid())
	f.config.Store(f.state.Configured())
	if err == nil {
		f.at(l.Index, l.Term)
	}
	f.mu.Unlock()
	if err != nil {
		f.stop(fmt.Errorf("apply log entry %d: %w", l.Index, err))
		return nil
	}
	f.low.Store(entries.Low(l.Data))
	f.full.Store(entries.IsFull(l.Data))
	f.ahead.Store(entries.Time(l.Data) - f.o.Now().UnixMilli())
	if f.replaced {
		f.replaced = false
		f.o.Log.Warn("the state was replaced by a backup; all clients were cut off", "zxid",
			fmt.Sprintf("0x%x", f.zxid.Load()))
	}
	f.advance()
	f.counted.bytes.Add(int64(len(l.Data)))
	f.o.Observer.Applied()
	f.measureApplied(l, began, f.counted.requests.Load()-before)
	return nil
}

// stop() ends the server, because its state cannot be trusted any longer.
func (f *FSM) stop(err error) {
	if !f.dead.Swap(true) {
		f.o.Fatal(err)
	}
}

// sink is the FSM as the receiver of what state.Apply reports. It passes events to the observer, and
// outcomes to the waiters of this server's stream.
type sink FSM

func (f *sink) Events(zxid int64, events []tree.Event) {
	if len(events) == 2 && events[0].Type == jute.EventDeleted && f.leads.Load() != nil {
		dir, _ := f.state.Tree().Get(events[1].Path)
		f.passedOn.Store(f.passedOn.Load() || dir.NumChildren > 0)
	}
	f.o.Observer.Events(zxid, events)
}

func (f *sink) Ended(e *state.Ending) {
	// A lock that a session's end releases does not count: the client of that session does not queue again.
	f.passedOn.Store(false)
	if t := f.leads.Load(); t != nil {
		t.Remove(e.Session.ID)
	}
	f.o.Observer.SessionEnded(e)
}

func (f *sink) Attached(s *session.Session, created bool) {
	if t := f.leads.Load(); t != nil {
		t.Touch(s.ID, s.Timeout)
	}
	if !created {
		f.o.Observer.SessionMoved(s.ID, s.Gen)
	}
}

func (f *sink) Opened(id uint32, nonce int64, birth uint32) {
	if id == f.o.ID && f.Stream.Told(nonce, birth) {
		f.o.Reopen()
	}
	f.o.Opened()
}

func (f *sink) Replaced() {
	if t := f.leads.Load(); t != nil {
		t.replace(f.state.Sessions())
	}
	f.o.Observer.Reset()
	f.replaced = true
}

func (f *sink) Outcome(origin, birth uint32, seq uint64, o *state.Outcome) {
	f.counted.requests.Add(1)
	if origin != f.o.ID || birth == 0 {
		return
	}
	if w := f.Stream.Applied(birth, seq); w != nil {
		// Set the zxid after the events are sent: a client that saw the zxid before its events would miss
		// them. Set it before the outcome, so that no later reply has a lower zxid.
		f.zxid.Store(f.state.Zxid())
		w.Done(o, f.state)
	}
}
