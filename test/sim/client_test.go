package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/history"
	"github.com/zlockd/zlockd/test/wire"
)

// Root is the existing node below which all clients work.
const Root = "/w"

// keys is how many nodes the clients contend for.
const keys = 8

// Client is one client that keeps its session over reconnects.
type Client struct {
	Name    string
	Dial    func() (net.Conn, error) // connects to a server that is chosen for each connection
	Timeout time.Duration            // the session's timeout
	Pause   time.Duration            // the longest pause between two requests
	Clock   func() time.Duration     // shared by all clients of a history
	Record  *history.Recorder
	Conns   func() int // returns the number of the next connection
	Rand    *rand.Rand
	Seed    uint64 // the seed of the requests; it and a request's number determine the request
	// Only, if set, selects by number the requests that the client sends.
	Only func(number int) bool
	// User is the number of the user that the client is, mostly.
	User int
	// Bulk, if set, makes some values and identities large.
	Bulk *rand.Rand
	// Rest, if set, is called before each group of up to three requests, and returns how long the client pauses
	// first. Such a client keeps its session for hours.
	Rest func() time.Duration

	session wire.Session
	zxid    int64
	watches history.Watches
	queue   []string   // the client's sequential nodes, if Rest is set
	drawn   int        // how many requests were drawn
	draw    *rand.Rand // draws the current request
}

// Run works until `stop` is closed. It leaves its session open.
func (c *Client) Run(stop <-chan struct{}) {
	c.watches = history.NewWatches()
	for !closed(stop) {
		if !c.attach(stop) {
			time.Sleep(time.Duration(c.Rand.Int64N(int64(100 * time.Millisecond))))
		}
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// attach() connects with the client's session, or with a new one, and runs the connection until it ends.
func (c *Client) attach(stop <-chan struct{}) bool {
	nc, err := c.Dial()
	if err != nil {
		return false
	}
	w := wire.New(nc)
	defer w.Close()
	w.Timeout = c.Timeout * 2 / 3
	w.Zxid = c.zxid
	start := c.Clock()
	request := wire.NewSession(int32(c.Timeout.Milliseconds()))
	request.LastZxidSeen = c.zxid
	fresh := c.session.ID == 0
	if !fresh {
		request = wire.Attach(c.session, c.zxid)
	}
	switch err := w.Connect(request); {
	case errors.Is(err, wire.ErrRefused):
		c.Record.Add(history.Record{Expired: &history.Expired{Session: c.session.ID, At: c.Clock()}})
		c.lose()
		return true
	case err != nil:
		return false
	}
	c.session = w.Session
	x := &exchange{c: c, w: w, conn: c.Conns()}
	proofs := c.proofs()
	c.Record.Add(history.Record{Connect: &history.Connect{Client: c.Name, Conn: x.conn, Session: c.session.ID,
		New: fresh, LastZxid: request.LastZxidSeen, Timeout: time.Duration(c.session.Timeout) * time.Millisecond,
		Start: start, End: c.Clock(), IDs: proved(proofs)}})
	for _, credentials := range proofs {
		if _, err := w.Call(jute.OpAuth, wire.Auth("digest", credentials)); err != nil {
			return true
		}
	}
	if op := c.watches.Request(request.LastZxidSeen); op == nil || x.send(op) && x.receiveAll() {
		x.run(stop)
	}
	c.zxid = max(c.zxid, w.Zxid)
	x.fail()
	return true
}

// lose() forgets the session, so that the client begins another one.
func (c *Client) lose() {
	c.session, c.watches, c.queue = wire.Session{}, history.NewWatches(), nil
}

// proofs() returns the credentials that the client shows on a new connection. Some clients show none, or also
// those of another user, or identities that are much longer than their requests.
func (c *Client) proofs() (list []string) {
	k := c.Rand.IntN(8)
	if k > 0 {
		list = append(list, credentialsOf(c.User))
	}
	if k > 6 {
		list = append(list, credentialsOf((c.User+1)%users))
	}
	if c.Bulk != nil && c.Bulk.IntN(3) == 0 {
		list = append(list, strings.Repeat("u", c.Bulk.IntN(12<<10))+":p")
	}
	return list
}

// proved() returns the identities that credentials prove.
func proved(proofs []string) (ids []jute.ID) {
	for _, credentials := range proofs {
		ids = append(ids, userID(credentials))
	}
	return ids
}

// exchange is the traffic on one connection.
type exchange struct {
	c       *Client
	w       *wire.Conn
	conn    int
	seq     int
	pending []*history.Op // in the order they were sent
	xids    []int32       // the xids of the pending requests
	end     bool          // the session was closed
}

// run() sends requests, up to three at once, until the connection is lost, the client decides to leave, or
// `stop` is closed.
func (x *exchange) run(stop <-chan struct{}) {
	often := 400
	if x.c.Rest != nil {
		often = 2000
	}
	for !closed(stop) && !x.end {
		switch x.c.Rand.IntN(often) {
		case 0:
			return // like a client that lost its network
		case 1: // or like a client that hangs: its session may end while it hangs
			x.silence(stop)
		case 2:
			x.w.Close()
			x.silence(stop)
			return
		}
		if x.c.Rest != nil && !x.rest(x.c.Rest(), stop) {
			return
		}
		for range 1 + x.c.Rand.IntN(3) {
			op := x.c.next()
			if op != nil && op.Op == jute.OpPing { // wait, so that the ping may meet the answers to earlier requests
				time.Sleep(time.Duration(x.c.draw.Int64N(int64(16 * time.Millisecond))))
			}
			if op != nil && !x.send(op) {
				return
			}
		}
		if !x.receiveAll() {
			return
		}
		time.Sleep(time.Duration(x.c.Rand.Int64N(int64(x.c.Pause) + 1)))
	}
}

// rest() receives events for a time, and pings as often as a client library does.
func (x *exchange) rest(d time.Duration, stop <-chan struct{}) bool {
	patience := x.w.Timeout
	defer func() { x.w.Timeout = patience }()
	for end := x.c.Clock() + d; !closed(stop) && x.c.Clock() < end; {
		x.w.Timeout = min(end-x.c.Clock(), x.c.Timeout/3)
		err := x.receive()
		if err != nil && !isTimeout(err) {
			return false
		}
		if x.w.Timeout = patience; err != nil {
			if !x.send(&history.Op{Step: history.Step{Op: jute.OpPing}}) || !x.receiveAll() {
				return false
			}
		}
	}
	return true
}

// silence() sends nothing for up to twice the session's timeout.
func (x *exchange) silence(stop <-chan struct{}) {
	select {
	case <-stop:
	case <-time.After(time.Duration(x.c.Rand.Int64N(int64(2 * x.c.Timeout)))):
	}
}

// receiveAll waits for the replies to all pending requests.
func (x *exchange) receiveAll() bool {
	for len(x.pending) > 0 {
		if x.receive() != nil {
			return false
		}
	}
	return true
}

// fail() records the pending requests as unanswered.
func (x *exchange) fail() {
	for _, op := range x.pending {
		op.Unknown, op.End = true, x.c.Clock()
		x.c.Record.Add(history.Record{Op: op})
	}
}

func (x *exchange) send(op *history.Op) bool {
	if x.end {
		return true
	}
	x.seq++
	op.Client, op.Conn, op.Session, op.Seq, op.Start = x.c.Name, x.conn, x.c.session.ID, x.seq, x.c.Clock()
	x.pending = append(x.pending, op)
	x.end = op.Op == jute.OpCloseSession
	xid, err := x.w.Send(op.Op, op.Body())
	x.xids = append(x.xids, xid)
	return err == nil
}

// receive() records one frame.
func (x *exchange) receive() error {
	f, err := x.w.Next()
	if err != nil {
		return err
	}
	if f.Event != nil {
		x.c.watches.Fired(f.Event.Type, f.Event.Path)
		x.c.Record.Add(history.Record{Event: &history.Event{Conn: x.conn, At: x.c.Clock(), Zxid: f.Zxid,
			Type: f.Event.Type, Path: f.Event.Path}})
		return nil
	}
	at := slices.Index(x.xids, f.Xid) // 0, unless the server mixed up the replies
	if at < 0 {
		panic(fmt.Sprintf("reply with xid %d, which nobody waits for", f.Xid))
	}
	op := x.pending[at]
	x.pending, x.xids = slices.Delete(x.pending, at, at+1), slices.Delete(x.xids, at, at+1)
	op.End, op.Zxid, op.Code = x.c.Clock(), f.Zxid, f.Code
	d := jute.NewDecoder(f.Body)
	if f.Code == jute.OK {
		op.Decode(&d)
	}
	if d.Err() != nil {
		panic(fmt.Sprintf("reply to %v does not decode: %v", op.Op, d.Err()))
	}
	if op.Op == jute.OpCloseSession && f.Code == jute.OK {
		x.c.lose()
	}
	if x.c.Rest != nil && op.Flags == jute.FlagEphemeralSequential && op.Created != "" {
		x.c.queue = append(x.c.queue, op.Created)
	}
	x.c.watches.Answered(op)
	x.c.Record.Add(history.Record{Op: op})
	return nil
}
