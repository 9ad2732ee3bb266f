package conn

import (
	"encoding/binary"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/watches"
)

// A setWatches is compared with the tree in chunks, each under one hold of the state lock: at most
// catchUpChunk paths, with catchUpBytes bytes in total. A change between two chunks is not missed. If its
// path comes later, the comparison finds the change; if its path came earlier, the watch is set and fires.
const (
	catchUpChunk = 500
	catchUpBytes = 256 << 10
)

// catchUp carries out one setWatches. It sends the events that the client missed while it had no connection.
// It sets the watches for which the client missed no event.
type catchUp struct {
	c    *Conn
	step jute.SetWatches // the paths of this chunk
	n    int             // number of paths in `step`
	size int
	cost int
	zxid int64 // zxid in the reply
	open bool  // the connection has not ended
}

func newCatchUp(c *Conn, since int64) *catchUp {
	return &catchUp{c: c, step: jute.SetWatches{RelativeZxid: since}, zxid: c.replica.Zxid(), open: true}
}

// add adds one path, and compares the chunk when it is full. It returns false when the connection has ended.
func (u *catchUp) add(list *[]string, path string) bool {
	*list = append(*list, path)
	u.n++
	u.size += len(path)
	u.cost += bounds.ReadSteps(path, *u.c.proof.IDs.Load()) + bounds.WatchSteps(path)
	if u.n == catchUpChunk || u.size >= catchUpBytes {
		u.compare()
	}
	return u.open
}

// compare compares the paths of this chunk with the tree.
func (u *catchUp) compare() {
	if u.n == 0 {
		return
	}
	if !u.c.afford(int64(u.cost)) {
		u.open = false
		return
	}
	u.c.replica.View(u.view)
	u.c.out.FlushLarge()
	for _, l := range request.Lists(&u.step, jute.OpSetWatches2) {
		clear(*l)
		*l = (*l)[:0]
	}
	u.n, u.size, u.cost = 0, 0, 0
}

// view() is the part of compare() that runs under the state lock.
func (u *catchUp) view(st *state.State) {
	u.zxid = st.Zxid()
	st.Tree().CatchUp(*u.c.proof.IDs.Load(), &u.step, u.arm, u.tell)
}

func (u *catchUp) arm(k watches.Kind, path string) {
	u.open = u.open && u.c.shared.Watches.Add(&u.c.watcher, path, k)
}

func (u *catchUp) tell(e jute.EventType, path string) {
	c := u.c
	c.out.Lock()
	defer c.out.Unlock()
	if u.open = u.open && c.out.Accepts(); u.open {
		c.out.AppendEvent(-1, e, path)
		c.out.Grown(false)
	}
}

// setWatches carries out a setWatches, a chunk at a time. If the frame is longer than other frames may be,
// only its header is here: setWatches begins, and reads the rest as it arrives. In a shorter frame it first
// checks the form of all lists, so that a malformed one sets no watch.
func (c *Conn) setWatches(xid int32, op jute.OpCode, body []byte) bool {
	p := pieces{c: c}
	if c.reader.within == 0 {
		if !request.WholeLists(op, body) {
			return c.reply(xid, op, c.replica.Zxid(), jute.MarshallingError, nil)
		}
		c.reader.in.Return(len(body))
		c.reader.within = len(body)
	}
	u := newCatchUp(c, p.long())
	for _, list := range request.Lists(&u.step, op) {
		n := p.int()
		if n == -1 {
			p.fail() // -1 stands for null, and a list must not be null
		}
		for ; n > 0 && u.open && p.why == ends.None; n-- {
			u.add(list, p.string())
		}
	}
	if p.why == ends.None && u.open {
		u.compare()
	}
	for c.reader.within > 0 && p.why == ends.None && u.open {
		p.take(min(c.reader.within, inbox.First))
	}
	c.reader.frameStart = 0
	switch p.why {
	case ends.None:
		return u.open && c.reply(xid, op, u.zxid, jute.OK, nil)
	case ends.Malformed:
		c.out.Last(nil, ends.Malformed)
	default:
		c.out.Close(p.why)
	}
	return false
}

// pieces reads the rest of a frame while it arrives.
type pieces struct {
	c   *Conn
	why ends.Reason // None: more bytes can be read; otherwise the reason why not
}

// take returns the next n bytes, which are valid until the next call. It returns nil if the connection must
// end, for the reason p.why.
func (p *pieces) take(n int) []byte {
	c := p.c
	if n < 0 || n > c.reader.within || n > c.shared.Options.MaxFrame {
		p.fail()
	}
	for p.why == ends.None && c.reader.in.Len() < n {
		c.reader.in.Want(n)
		c.out.Flush()
		p.why = c.fill()
	}
	if p.why != ends.None {
		return nil
	}
	b := c.reader.in.Bytes()[:n]
	c.reader.in.Skip(n)
	c.reader.within -= n
	return b
}

// fail records that the frame is malformed.
func (p *pieces) fail() {
	if p.why == ends.None {
		p.why = ends.Malformed
	}
}

func (p *pieces) int() int {
	if b := p.take(4); b != nil {
		return int(int32(binary.BigEndian.Uint32(b)))
	}
	return 0
}

func (p *pieces) long() int64 {
	if b := p.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// string() returns the next string. A null string makes the frame malformed.
func (p *pieces) string() string { return string(p.take(p.int())) }
