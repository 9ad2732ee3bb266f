package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// Pipe is a client for load: the caller appends requests, writes them at once and reads the
// replies in order. It has no table of requests and copies only what it must. So the client's
// share of a small machine stays small, and is the same for every measured server. Ping keeps
// an idle session alive. Pipe is not safe for concurrent use.
type Pipe struct {
	Session  int64
	Password []byte
	Timeout  time.Duration // as negotiated
	Zxid     int64         // newest zxid in a reply
	Pongs    int           // answered pings

	c    net.Conn
	xid  int32
	out  []byte
	in   []byte // in[r:w] is read and not yet consumed
	r, w int
}

// Answer is a reply or, with Xid jute.XidEvent, an event. Body is valid until the next call of Next.
type Answer struct {
	Xid  int32
	Zxid int64
	Err  jute.ErrCode
	Body []byte
}

// OpenPipe opens a new session.
func OpenPipe(addr string, timeout time.Duration) (*Pipe, error) {
	return AttachPipe(addr, timeout, 0, make([]byte, jute.PasswordSize), 0)
}

// AttachPipe opens a connection for a session; 0 makes a new session. Like Connect it returns
// ErrRefused if the server no longer knows the session.
func AttachPipe(addr string, timeout time.Duration, session int64, password []byte, zxid int64) (*Pipe,
	error) {
	c, err := Dial(addr)
	if err != nil {
		return nil, err
	}
	c.Timeout = 20 * time.Second
	if err := c.Connect(Attach(Session{ID: session, Password: password, Timeout: int32(timeout.Milliseconds())},
		zxid)); err != nil {
		c.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	c.SetDeadline(time.Time{})
	return &Pipe{Session: c.Session.ID, Password: c.Session.Password,
		Timeout: time.Duration(c.Session.Timeout) * time.Millisecond, Zxid: zxid,
		c: c.Conn, in: make([]byte, 4096)}, nil
}

// begin starts a request and returns the position of its frame.
func (c *Pipe) begin(op jute.OpCode) (at int) {
	c.xid++
	c.out, at = jute.BeginFrame(c.out)
	c.out = jute.AppendInt(c.out, c.xid)
	c.out = jute.AppendInt(c.out, int32(op))
	return at
}

func (c *Pipe) end(at int) { jute.EndFrame(c.out, at) }

// Create appends a create with an open ACL.
func (c *Pipe) Create(path string, data []byte, flags int32) {
	at := c.begin(jute.OpCreate)
	c.out = jute.AppendString(c.out, path)
	c.out = jute.AppendBuffer(c.out, data)
	c.out = jute.AppendACL(c.out, jute.WorldAnyone)
	c.out = jute.AppendInt(c.out, flags)
	c.end(at)
}

// Delete appends a delete of any version.
func (c *Pipe) Delete(path string) {
	at := c.begin(jute.OpDelete)
	c.out = jute.AppendString(c.out, path)
	c.out = jute.AppendInt(c.out, -1)
	c.end(at)
}

// Set appends a setData of any version.
func (c *Pipe) Set(path string, data []byte) {
	at := c.begin(jute.OpSetData)
	c.out = jute.AppendString(c.out, path)
	c.out = jute.AppendBuffer(c.out, data)
	c.out = jute.AppendInt(c.out, -1)
	c.end(at)
}

func (c *Pipe) read(op jute.OpCode, path string, watch bool) {
	at := c.begin(op)
	c.out = jute.AppendString(c.out, path)
	c.out = jute.AppendBool(c.out, watch)
	c.end(at)
}

// Get appends a getData.
func (c *Pipe) Get(path string, watch bool) { c.read(jute.OpGetData, path, watch) }

// Exists appends an exists.
func (c *Pipe) Exists(path string, watch bool) { c.read(jute.OpExists, path, watch) }

// Children appends a getChildren.
func (c *Pipe) Children(path string, watch bool) { c.read(jute.OpGetChildren, path, watch) }

// Sync appends a sync.
func (c *Pipe) Sync(path string) {
	at := c.begin(jute.OpSync)
	c.out = jute.AppendString(c.out, path)
	c.end(at)
}

// Ping appends a ping. Its reply is consumed by Next.
func (c *Pipe) Ping() {
	var at int
	c.out, at = jute.BeginFrame(c.out)
	c.out = jute.AppendInt(c.out, jute.XidPing)
	c.out = jute.AppendInt(c.out, int32(jute.OpPing))
	c.end(at)
}

// Flush writes the appended requests.
func (c *Pipe) Flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.c.Write(c.out)
	c.out = c.out[:0]
	return err
}

// Ready reports whether a whole frame is already read, so that Next does not wait.
func (c *Pipe) Ready() bool {
	n := c.w - c.r
	return n >= 4 && n >= 4+int(binary.BigEndian.Uint32(c.in[c.r:]))
}

// Next returns the next reply or event. It skips ping replies.
func (c *Pipe) Next() (Answer, error) {
	for {
		b, err := c.frame()
		if err != nil {
			return Answer{}, err
		}
		if len(b) < jute.ReplyHeaderSize {
			return Answer{}, io.ErrUnexpectedEOF
		}
		r := Answer{
			Xid:  int32(binary.BigEndian.Uint32(b)),
			Zxid: int64(binary.BigEndian.Uint64(b[4:])),
			Err:  jute.ErrCode(binary.BigEndian.Uint32(b[12:])),
			Body: b[jute.ReplyHeaderSize:],
		}
		c.Zxid = max(c.Zxid, r.Zxid)
		if r.Xid != jute.XidPing {
			return r, nil
		}
		c.Pongs++
	}
}

// frame returns the next frame without its prefix.
func (c *Pipe) frame() ([]byte, error) {
	for !c.Ready() {
		if c.r > 0 {
			copy(c.in, c.in[c.r:c.w])
			c.w -= c.r
			c.r = 0
		}
		if need := 4; c.w >= 4 {
			need += int(binary.BigEndian.Uint32(c.in))
			if need > len(c.in) {
				c.in = append(c.in, make([]byte, need-len(c.in))...)
			}
		}
		n, err := c.c.Read(c.in[c.w:])
		if n == 0 && err != nil {
			return nil, err
		}
		c.w += n
	}
	n := int(binary.BigEndian.Uint32(c.in[c.r:]))
	b := c.in[c.r+4 : c.r+4+n]
	c.r += 4 + n
	return b, nil
}

// Do flushes and returns the one outstanding reply; it drops events before it. An error code
// becomes an error.
func (c *Pipe) Do() (Answer, error) {
	if err := c.Flush(); err != nil {
		return Answer{}, err
	}
	for {
		r, err := c.Next()
		if err != nil {
			return r, err
		}
		if r.Xid == jute.XidEvent {
			continue
		}
		if r.Err != jute.OK {
			return r, r.Err
		}
		return r, nil
	}
}

// SetDeadline bounds all waits on the connection.
func (c *Pipe) SetDeadline(t time.Time) { c.c.SetDeadline(t) }

// Drop closes the connection and leaves the session behind.
func (c *Pipe) Drop() { c.c.Close() }

// Close ends the session and closes the connection.
func (c *Pipe) Close() error {
	defer c.c.Close()
	c.end(c.begin(jute.OpCloseSession))
	c.c.SetDeadline(time.Now().Add(10 * time.Second))
	if err := c.Flush(); err != nil {
		return err
	}
	want := c.xid
	for {
		if r, err := c.Next(); err != nil || r.Xid == want {
			return err
		}
	}
}

// Event decodes an event. Its path shares the answer's memory.
func (r *Answer) Event() Event {
	d := jute.NewDecoder(r.Body)
	e := Event{Type: jute.EventType(d.Int()), State: d.Int()}
	e.Path, _ = d.String()
	return e
}

// String decodes an answer that is a string, as create's is. The result shares the answer's memory.
func (r *Answer) String() string {
	d := jute.NewDecoder(r.Body)
	s, _ := d.String()
	return s
}
