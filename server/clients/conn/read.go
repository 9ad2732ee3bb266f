package conn

import (
	"bytes"
	"encoding/binary"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/watches"
)

// maxRun bounds how many reads are answered under one hold of the state lock.
const maxRun = 64

// runSteps bounds the cost of the reads in a run, because the address pays only after the run.
const runSteps = 2000

// read() answers the read in `frame` and the reads right after it. It returns false when the connection has
// ended.
func (c *Conn) read(frame []byte) bool {
	c.reads.frame, c.reads.stop = frame, false
	for c.replica.View(c.reads.view); c.reads.need > 0 || c.reads.behind; c.replica.View(c.reads.view) {
		if c.reads.behind {
			if c.reads.behind = false; !c.out.Await(0, 0) {
				return false
			}
			continue
		}
		need := c.reads.need
		c.reads.need = 0
		if !c.foresee(c.reads.building + int64(need/bounds.ReadBytes)) {
			return false
		}
		if !c.out.Reserve(need, !c.reads.apart) {
			return false
		}
	}
	c.reads.frame = nil
	if c.reads.long != nil {
		c.answerLong()
	}
	if c.reads.stop {
		return false
	}
	c.out.FlushLarge()
	return true
}

// catchUp makes reads linearizable, if the options say so: it proposes an empty request and waits until that
// request is applied here. The read then sees every write that was acknowledged, to any client, before the
// read arrived.
func (c *Conn) catchUp() bool {
	if !c.shared.Options.LinearizableReads || c.readOnly {
		return true
	}
	c.reader.followed = nil
	return c.afford(request.WriteSteps) &&
		c.propose(outbox.Pending{Op: state.OpBarrier},
			state.Request{Session: c.session, Op: state.OpBarrier}) &&
		c.out.Await(0, 0)
}

// run() is the part of read() that runs under the state lock.
func (c *Conn) run(st *state.State) {
	frame, n, parked := c.reads.frame, 0, 0
	for {
		isParked, wait := c.park(st, frame)
		size, ok := 0, true
		if isParked {
			parked++
		} else if !wait {
			size, ok = c.readOne(st, frame)
		}
		if c.reads.behind = wait; wait || c.reads.need > 0 {
			c.reads.frame = frame
			break
		}
		if !isParked {
			n++
		}
		if !ok {
			c.reads.stop = true
			break
		}
		_, op, _ := inbox.Header(frame)
		if n+parked >= maxRun || c.reads.cost > runSteps || size >= outbox.FlushSize || c.reads.long != nil ||
			request.TakesLong(op) {
			break
		}
		next, _, err := c.reader.in.Peek(c.shared.Options.MaxFrame)
		if err != nil || len(next) < inbox.HeaderSize {
			break
		}
		if _, op, _ = inbox.Header(next); request.Of(op) != request.Read {
			break
		}
		c.reader.in.Take(next)
		frame = next
	}
	if n > 0 {
		c.readsAnswered(n)
	}
	c.charge(c.reads.cost)
	c.reads.cost = 0
}

// takeLong begins a longReply, if the read lists so many names that other clients would have to wait for it.
// The outbox is locked.
func (c *Conn) takeLong(st *state.State, xid int32, op jute.OpCode, body []byte) (
	w request.Watch, taken bool) {

	switch op {
	case jute.OpGetChildren, jute.OpGetChildren2:
		if c.out.Reserved() == 0 {
			return w, false // no memory is reserved, so longAnswer has found the list short
		}
	case jute.OpGetEphemerals:
	default:
		return w, false
	}
	d := jute.NewDecoder(body)
	path, named := d.String()
	w = request.Watch{Path: path, Kind: watches.Child, Set: op != jute.OpGetEphemerals && d.Bool()}
	if d.Err() != nil || !named && op != jute.OpGetEphemerals {
		return w, false
	}
	list := st.Tree().Take(op, c.session, *c.proof.IDs.Load(), path)
	if list == nil {
		return w, false
	}
	o := &c.out
	c.reads.cost += int64(o.Reserved() / 256)
	head, _ := jute.BeginFrame(nil)
	c.reads.long = &longReply{list, jute.AppendReplyHeader(head, xid, st.Zxid(), jute.OK)}
	o.OpenGap()
	return w, true
}

// answerLong builds the reply that takeLong began. The list's bytes are not copied: the replies to other
// clients may point to the same list.
func (c *Conn) answerLong() {
	l := c.reads.long
	c.reads.long = nil
	list := l.list.List()
	binary.BigEndian.PutUint32(l.head, uint32(len(l.head)-4+len(list)+len(l.list.Stat)))
	c.out.Lock()
	defer c.out.Unlock()
	c.out.Fill(l.head, list, l.list.Stat)
	c.out.Replied(false)
}

// longAnswer reports whether a read must wait, because its reply needs more memory than one may take under
// the state lock, or because it takes so long to compute that it needs a hold of the state lock for itself.
// It refuses a multiRead that exceeds the limits on the size or the cost of an answer.
func (c *Conn) longAnswer(st *state.State, op jute.OpCode, body []byte) (long bool, refusal jute.ErrCode) {
	switch op {
	case jute.OpGetChildren, jute.OpGetChildren2, jute.OpGetEphemerals, jute.OpMultiRead, jute.OpGetACL:
	default:
		return false, jute.OK
	}
	many := op == jute.OpMultiRead
	if many && c.out.Reserved() > 0 {
		return false, jute.OK // the memory is reserved: an earlier call has already sent this read to wait for it
	}
	size, steps := st.Tree().AnswerSize(op, c.session, body)
	if many && size > bounds.MaxMultiReadReply {
		refusal = jute.Throttled
	} else if many && steps > bounds.MaxSteps {
		refusal = jute.BadArguments
	}
	fits := size <= outbox.FlushSize || size <= c.out.Reserved()
	if fits && !(many && steps > bounds.MaxSteps/8) || refusal != jute.OK {
		c.reads.cost += int64(steps)
		return false, refusal
	}
	if many {
		c.reads.cost += int64(steps)
	}
	c.reads.need, c.reads.building = size+size/16+4<<10, int64(steps) // some more: the list may still grow
	c.reads.apart = st.Tree().IsLong(op, c.session, body)
	return true, jute.OK
}

// readOne answers one read: it appends the reply to the outbox and sets the watch before the next change can
// be applied. It returns the size of the outbox.
func (c *Conn) readOne(st *state.State, frame []byte) (size int, ok bool) {
	xid, op, body := inbox.Header(frame)
	c.seen(0, op, body)
	switch op {
	case jute.OpAddWatch, jute.OpRemoveWatches, jute.OpCheckWatches:
		return 0, c.watchOp(st, xid, op, body)
	}
	w, size, ok := c.appendRead(st, xid, op, body)
	if ok && w.Set {
		ok = c.shared.Watches.Add(&c.watcher, w.Path, w.Kind)
	}
	return size, ok
}

// appendRead appends the reply to one read.
func (c *Conn) appendRead(st *state.State, xid int32, op jute.OpCode, body []byte) (w request.Watch, size int,
	ok bool) {
	o := &c.out
	o.Lock()
	defer o.Unlock() // also unlocks if the tree panics
	if !c.out.Accepts() {
		return w, 0, false
	}
	long, refusal := c.longAnswer(st, op, body)
	if long {
		return w, 0, true
	}
	if w, taken := c.takeLong(st, xid, op, body); taken {
		c.readAnswered(xid, op, st.Zxid(), jute.OK, nil)
		return w, 0, true
	}
	w, reply, code := c.answerRead(st, xid, op, body, refusal)
	if op != jute.OpMultiRead {
		c.reads.cost += w.Steps(*c.proof.IDs.Load(), len(reply))
	}
	c.readAnswered(xid, op, st.Zxid(), code, reply)
	return w, o.Size(), true
}

// answerRead appends the reply to one read, or its refusal. The outbox is locked.
func (c *Conn) answerRead(st *state.State, xid int32, op jute.OpCode, body []byte, code jute.ErrCode) (
	w request.Watch, reply []byte, _ jute.ErrCode) {
	o := &c.out
	b, at := o.BeginReply(xid, st.Zxid(), o.Reserved())
	if code == jute.OK {
		var steps int
		b, w, steps, code = request.AppendRecord(st.Tree(), b, c.session, *c.proof.IDs.Load(), op, body)
		if op == jute.OpMultiRead { // never parked, so only the connection's goroutine writes to c.reads here
			c.reads.cost += int64(steps)
		}
	}
	o.EndReply(b, at, code)
	if o.Size() > outbox.FlushSize || o.Reserved() > 0 {
		o.Replied(o.Pending() > 0) // with pending requests, this read is itself one of them: a parked one
	}
	if code == jute.OK {
		c.shared.Metrics.Reads.Observe(w.Path, int64(len(b)-at))
	}
	return w, b[at+4+jute.ReplyHeaderSize:], code
}

// A read must see the effects of its connection's earlier writes, and none of later ones. If writes are
// pending, the read is parked: it takes a place among the pending requests, so that later requests need not
// wait for it. The goroutine that applies the log answers it right after the outcome of the write before it.
// All clients wait for that goroutine, so only a read with a short answer is parked. Any other read waits
// until its connection's writes are answered. Another client's change may still make the answer of a parked
// read long. Then the bounds on events apply to the answer.
const (
	parkedFrame  = 256     // longest request that may be parked
	parkedAnswer = 4 << 10 // longest answer of a read that may be parked, in the state at the request's arrival
)

// park parks a read if requests of its connection are pending and its answer is short. The result `wait` is
// true if the read must wait instead: requests are pending, but it cannot be parked.
func (c *Conn) park(st *state.State, frame []byte) (parked, wait bool) {
	o := &c.out
	o.Lock()
	defer o.Unlock()
	n := o.Pending()
	if n == 0 {
		return false, false
	}
	xid, op, body := inbox.Header(frame)
	switch op {
	case jute.OpGetData, jute.OpExists, jute.OpGetACL, jute.OpGetChildren, jute.OpGetChildren2:
	default:
		return false, true
	}
	if n >= c.shared.Options.MaxPending/2 || len(frame) > parkedFrame || o.LongPending() > 0 {
		return false, true
	}
	size, steps := st.Tree().AnswerSize(op, c.session, body)
	if c.reads.cost += int64(steps); size > parkedAnswer {
		return false, true
	}
	p := outbox.Pending{Xid: xid, Op: op, At: c.reader.arrived, Parked: bytes.Clone(frame)}
	c.seen(0, op, p.Parked[inbox.HeaderSize:])
	p.Followed = c.reader.followed
	o.Push(p)
	o.Stat.Received(1)
	c.shared.Metrics.PacketsReceived.Add(1)
	return true, false
}

// answerParked answers the parked reads that are now at the front of the pending requests. The outbox is
// locked, except while a watch is set.
func (c *Conn) answerParked(st *state.State) {
	o := &c.out
	for o.Pending() > 0 && o.Front().Parked != nil {
		if st != nil && c.out.Accepts() {
			c.answerOne(st, o.Front())
		}
		o.Pop()
	}
}

func (c *Conn) answerOne(st *state.State, p outbox.Pending) {
	o := &c.out
	_, op, body := inbox.Header(p.Parked)
	w, reply, code := c.answerRead(st, p.Xid, op, body, jute.OK)
	c.charge(w.Steps(*c.proof.IDs.Load(), len(reply)))
	out := state.Outcome{Code: code, Zxid: st.Zxid(), Reply: reply}
	now := c.shared.batchTime(&out)
	c.answered(p, &out, now)
	c.shared.Metrics.ReadLatency.ObserveTime(max(now-p.At, 0))
	if w.Set {
		o.Unlock() // the lock of the watches must be taken before the lock of the outbox
		c.shared.Watches.Add(&c.watcher, w.Path, w.Kind)
		o.Lock()
	}
}

// watchOp answers addWatch, removeWatches and checkWatches. It calls the table of watches before it locks the
// outbox, because the table's lock must be taken first.
func (c *Conn) watchOp(st *state.State, xid int32, op jute.OpCode, body []byte) (open bool) {
	w, which, code := request.WatchOp(op, body)
	c.reads.cost += int64(bounds.WatchSteps(w.Path))
	var record []byte
	open = true
	switch {
	case code != jute.OK:
	case w.Set:
		open = c.shared.Watches.Add(&c.watcher, w.Path, w.Kind)
		record = []byte{0, 0, 0, 0}
	case !c.shared.Watches.Find(&c.watcher, op, w.Path, which):
		code = jute.NoWatcher
	}
	o := &c.out
	o.Lock()
	defer o.Unlock()
	if !open || !o.Accepts() {
		return false
	}
	b, at := o.BeginReply(xid, st.Zxid(), len(record))
	o.EndReply(append(b, record...), at, code)
	c.readAnswered(xid, op, st.Zxid(), code, record)
	return true
}
