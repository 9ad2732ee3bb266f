package wire

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// Pipe is a client for load: the caller appends requests, writes them together and reads the replies in
// order. It has no table of requests and copies only what it must. So the client's share of a small machine
// stays small, and is the same for every measured server. Ping keeps an idle session alive. One goroutine may
// append and write requests while another calls Next; Pipe is not safe for further concurrent use.
type Pipe struct {
	Session Session
	Zxid    int64 // newest zxid in a reply
	Pongs   int   // answered pings

	c      *Conn
	record Body // room for the record of the next request
	out    []byte
	in     []byte // in[r:w] is read and not yet consumed
	r, w   int
}

// OpenPipe opens a new session.
func OpenPipe(addr string, timeout time.Duration) (*Pipe, error) {
	return AttachPipe(addr, Session{Password: make([]byte, jute.PasswordSize),
		Timeout: int32(timeout.Milliseconds())}, 0)
}

// AttachPipe opens a connection for a session. Like Connect it returns ErrRefused if the server no longer
// knows the session.
func AttachPipe(addr string, s Session, zxid int64) (*Pipe, error) {
	c, err := Dial(addr)
	if err != nil {
		return nil, err
	}
	c.Timeout = 20 * time.Second
	if err := c.Connect(Attach(s, zxid)); err != nil {
		c.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	c.SetDeadline(time.Time{})
	return &Pipe{Session: c.Session, Zxid: zxid, c: c, in: make([]byte, 4096)}, nil
}

// append() appends a request. The record uses the memory of c.record.
func (c *Pipe) append(op jute.OpCode, record Body) {
	c.record = record[:0]
	c.c.xid++
	c.out = AppendRequest(c.out, c.c.xid, op, record)
}

// Create appends a create with an open ACL.
func (c *Pipe) Create(path string, data []byte, flags int32) {
	c.append(jute.OpCreate, c.record.Str(path).Buf(data).ACL(jute.WorldAnyone).Int(flags))
}

// Delete appends a delete of any version.
func (c *Pipe) Delete(path string) { c.append(jute.OpDelete, c.record.Str(path).Int(-1)) }

// Set appends a setData of any version.
func (c *Pipe) Set(path string, data []byte) {
	c.append(jute.OpSetData, c.record.Str(path).Buf(data).Int(-1))
}

// Get appends a getData.
func (c *Pipe) Get(path string, watch bool) {
	c.append(jute.OpGetData, c.record.Str(path).Bool(watch))
}

// Exists appends an exists.
func (c *Pipe) Exists(path string, watch bool) {
	c.append(jute.OpExists, c.record.Str(path).Bool(watch))
}

// Children appends a getChildren.
func (c *Pipe) Children(path string, watch bool) {
	c.append(jute.OpGetChildren, c.record.Str(path).Bool(watch))
}

// Sync appends a sync.
func (c *Pipe) Sync(path string) { c.append(jute.OpSync, c.record.Str(path)) }

// Ping appends a ping. Next skips the reply.
func (c *Pipe) Ping() { c.out = AppendRequest(c.out, jute.XidPing, jute.OpPing, nil) }

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

// Next returns the next reply or event, whose body is valid until the next call. It skips ping replies.
func (c *Pipe) Next() (Frame, error) {
	for {
		b, err := c.frame()
		if err != nil {
			return Frame{}, err
		}
		f, err := DecodeFrame(b)
		c.Zxid = max(c.Zxid, f.Zxid)
		if f.Xid != jute.XidPing || err != nil {
			return f, err
		}
		c.Pongs++
	}
}

// frame() returns the next frame without its prefix.
func (c *Pipe) frame() ([]byte, error) {
	for !c.Ready() {
		copy(c.in, c.in[c.r:c.w])
		c.r, c.w = 0, c.w-c.r
		if c.w >= 4 {
			need := 4 + int(binary.BigEndian.Uint32(c.in))
			c.in = append(c.in, make([]byte, max(need-len(c.in), 0))...)
		}
		n, err := c.c.Read(c.in[c.w:])
		if n == 0 && err != nil {
			return nil, err
		}
		c.w += n
	}
	b := c.in[c.r+4 : c.r+4+int(binary.BigEndian.Uint32(c.in[c.r:]))]
	c.r += 4 + len(b)
	return b, nil
}

// Do flushes and returns the one outstanding reply; it drops events before it. An error code
// becomes an error.
func (c *Pipe) Do() (Frame, error) {
	if err := c.Flush(); err != nil {
		return Frame{}, err
	}
	for {
		switch f, err := c.Next(); {
		case err != nil:
			return f, err
		case f.Event != nil:
		case f.Code != jute.OK:
			return f, f.Code
		default:
			return f, nil
		}
	}
}

// SetDeadline bounds all waits on the connection.
func (c *Pipe) SetDeadline(t time.Time) { c.c.SetDeadline(t) }

// Drop closes the connection and leaves the session behind.
func (c *Pipe) Drop() { c.c.Close() }

// Close ends the session and closes the connection.
func (c *Pipe) Close() error {
	defer c.c.Close()
	c.append(jute.OpCloseSession, nil)
	c.c.SetDeadline(time.Now().Add(10 * time.Second))
	if err := c.Flush(); err != nil {
		return err
	}
	for {
		if f, err := c.Next(); err != nil || f.Xid == c.c.xid {
			return err
		}
	}
}

// Text decodes a reply that is a string, as create's is. The result shares the frame's memory.
func (f *Frame) Text() string {
	d := jute.NewDecoder(f.Body)
	s, _ := d.String()
	return s
}
