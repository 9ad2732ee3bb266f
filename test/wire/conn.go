package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// DefaultTimeout bounds every wait of a Conn for one frame.
const DefaultTimeout = 30 * time.Second

// ErrRefused is the error of Connect if the server declares the session ended. A real client reports that
// answer as "session expired".
var ErrRefused = errors.New("wire: session refused")

// Event is a watch event.
type Event struct {
	Type  jute.EventType
	State int32
	Path  string
}

// Frame is one frame from the server: a reply, or an event if Event is set.
type Frame struct {
	Xid   int32
	Zxid  int64
	Code  jute.ErrCode
	Body  []byte // the response record
	Event *Event
}

// Session is a session as the server granted it.
type Session struct {
	ID          int64
	Password    []byte
	Timeout     int32 // ms
	ReadOnly    bool
	HasReadOnly bool // the response carried the read-only byte
}

// Conn is one connection to a server, for one goroutine at a time.
type Conn struct {
	net.Conn
	Session Session

	// Timeout bounds each wait for a frame and each write; zero means DefaultTimeout.
	Timeout time.Duration
	// Zxid is the highest zxid seen in a reply, as clients remember it.
	Zxid int64
	// Events holds in order the events that arrived while Reply and the typed methods waited for a reply.
	Events []Event

	xid int32
}

// Dial opens a TCP connection; no bytes are exchanged yet.
func Dial(addr string) (*Conn, error) {
	nc, err := net.DialTimeout("tcp", addr, DefaultTimeout)
	if err != nil {
		return nil, err
	}
	return New(nc), nil
}

// New returns a Conn over nc.
func New(nc net.Conn) *Conn { return &Conn{Conn: nc} }

// Open dials addr and asks for a new session of 30 seconds.
func Open(addr string) (*Conn, error) {
	c, err := Dial(addr)
	if err != nil {
		return nil, err
	}
	if err := c.Connect(NewSession(30000)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// NewSession returns the request for a new session, as a current client sends it.
func NewSession(timeout int32) jute.ConnectRequest {
	return jute.ConnectRequest{Timeout: timeout, Password: make([]byte, jute.PasswordSize), HasReadOnly: true}
}

// Attach returns the request to resume session s, for a client that has seen zxid.
func Attach(s Session, zxid int64) jute.ConnectRequest {
	return jute.ConnectRequest{
		LastZxidSeen: zxid, Timeout: s.Timeout, SessionID: s.ID, Password: s.Password, HasReadOnly: true,
	}
}

// AppendConnectRequest appends r as a frame.
func AppendConnectRequest(b []byte, r jute.ConnectRequest) []byte {
	b, at := jute.BeginFrame(b)
	b = jute.AppendInt(b, r.ProtocolVersion)
	b = jute.AppendLong(b, r.LastZxidSeen)
	b = jute.AppendInt(b, r.Timeout)
	b = jute.AppendLong(b, r.SessionID)
	b = jute.AppendBuffer(b, r.Password)
	if r.HasReadOnly {
		b = jute.AppendBool(b, r.ReadOnly)
	}
	jute.EndFrame(b, at)
	return b
}

// Connect performs the handshake. It returns ErrRefused if the server refuses the session for good, and
// io.EOF if the server closes the connection without an answer.
func (c *Conn) Connect(r jute.ConnectRequest) error {
	return c.ConnectRaw(AppendConnectRequest(nil, r))
}

// ConnectRaw does the same as Connect, with a request that is already a frame.
func (c *Conn) ConnectRaw(frame []byte) error {
	if err := c.WriteRaw(frame); err != nil {
		return err
	}
	b, err := c.ReadFrame()
	if err != nil {
		return err
	}
	s, err := DecodeSession(b)
	if err != nil {
		return err
	}
	if s.ID == 0 || s.Timeout <= 0 {
		return ErrRefused
	}
	c.Session = s
	return nil
}

// DecodeSession reads the body of a connect response.
func DecodeSession(b []byte) (s Session, err error) {
	d := jute.NewDecoder(b)
	if v := d.Int(); v != 0 {
		return s, fmt.Errorf("wire: connect response has protocol version %d", v)
	}
	s = Session{Timeout: d.Int(), ID: d.Long(), Password: d.Buffer()}
	if d.Err() == nil && len(d.Rest()) > 0 {
		s.HasReadOnly, s.ReadOnly = true, d.Bool()
	}
	switch {
	case d.Err() != nil:
		return s, fmt.Errorf("wire: connect response: %w", d.Err())
	case len(s.Password) != jute.PasswordSize:
		return s, fmt.Errorf("wire: connect response has a password of %d bytes", len(s.Password))
	case len(d.Rest()) > 0:
		return s, fmt.Errorf("wire: connect response has %d bytes too many", len(d.Rest()))
	}
	return s, nil
}

func (c *Conn) deadline() time.Time {
	if c.Timeout == 0 {
		return time.Now().Add(DefaultTimeout)
	}
	return time.Now().Add(c.Timeout)
}

// WriteRaw writes bytes as they are.
func (c *Conn) WriteRaw(b []byte) error {
	c.SetWriteDeadline(c.deadline())
	_, err := c.Write(b)
	return err
}

// AppendRequest appends a whole request frame.
func AppendRequest(b []byte, xid int32, op jute.OpCode, body []byte) []byte {
	b, at := jute.BeginFrame(b)
	b = jute.AppendInt(b, xid)
	b = jute.AppendInt(b, int32(op))
	b = append(b, body...)
	jute.EndFrame(b, at)
	return b
}

// SendXid writes a request with a chosen xid.
func (c *Conn) SendXid(xid int32, op jute.OpCode, body []byte) error {
	return c.WriteRaw(AppendRequest(nil, xid, op, body))
}

// Send writes a request and returns its xid. It numbers requests as clients do: from 1, with
// the reserved xids for ping and auth.
func (c *Conn) Send(op jute.OpCode, body []byte) (xid int32, err error) {
	switch op {
	case jute.OpPing:
		xid = jute.XidPing
	case jute.OpAuth:
		xid = jute.XidAuth
	default:
		c.xid++
		xid = c.xid
	}
	return xid, c.SendXid(xid, op, body)
}

// ReadFrame reads one frame and returns it without its length prefix. At the end of the
// connection it returns io.EOF, after an orderly close and after a reset.
func (c *Conn) ReadFrame() ([]byte, error) {
	c.SetReadDeadline(c.deadline())
	var prefix [4]byte
	if _, err := io.ReadFull(c, prefix[:]); err != nil {
		return nil, plainEOF(err)
	}
	n := int32(binary.BigEndian.Uint32(prefix[:]))
	if n < 0 || n > 1<<28 {
		return nil, fmt.Errorf("wire: frame of length %d", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, fmt.Errorf("wire: frame cut short: %w", err)
	}
	return b, nil
}

// plainEOF maps a reset to io.EOF. When the server closes, a client sees one or the other, depending on the
// bytes that are still under way.
func plainEOF(err error) error {
	if errors.Is(err, io.EOF) || isReset(err) {
		return io.EOF
	}
	return err
}

// DecodeFrame decodes a frame after the handshake, without its length prefix.
func DecodeFrame(b []byte) (f Frame, err error) {
	d := jute.NewDecoder(b)
	f = Frame{Xid: d.Int(), Zxid: d.Long(), Code: jute.ErrCode(d.Int())}
	if d.Err() != nil {
		return f, fmt.Errorf("wire: reply header: %w", d.Err())
	}
	f.Body = d.Rest()
	if f.Xid == jute.XidEvent {
		e := Event{Type: jute.EventType(d.Int()), State: d.Int()}
		e.Path, _ = d.String()
		if d.Err() != nil || len(d.Rest()) > 0 || f.Code != jute.OK {
			return f, fmt.Errorf("wire: malformed event %x", b)
		}
		f.Event = &e
	}
	return f, nil
}

// Next returns the next frame of any kind.
func (c *Conn) Next() (Frame, error) {
	b, err := c.ReadFrame()
	if err != nil {
		return Frame{}, err
	}
	f, err := DecodeFrame(b)
	if err == nil && f.Xid >= 0 && f.Zxid > c.Zxid {
		c.Zxid = f.Zxid
	}
	return f, err
}

// Reply returns the next frame that is not an event. It appends earlier events to Events.
func (c *Conn) Reply() (Frame, error) {
	for {
		f, err := c.Next()
		if err != nil || f.Event == nil {
			return f, err
		}
		c.Events = append(c.Events, *f.Event)
	}
}

// Call sends a request and returns its reply. A reply with another xid is an
// error; a code other than OK is not.
func (c *Conn) Call(op jute.OpCode, body []byte) (Frame, error) {
	xid, err := c.Send(op, body)
	if err != nil {
		return Frame{}, fmt.Errorf("send %v: %w", op, err)
	}
	f, err := c.Reply()
	if err != nil {
		return f, fmt.Errorf("reply to %v: %w", op, err)
	}
	if f.Xid != xid {
		return f, fmt.Errorf("wire: reply to %v has xid %d, want %d", op, f.Xid, xid)
	}
	return f, nil
}

// Silent waits for d. It returns an error if anything arrives, even the end of the connection.
func (c *Conn) Silent(d time.Duration) error {
	c.SetReadDeadline(time.Now().Add(d))
	var b [1]byte
	n, err := c.Read(b[:])
	var ne net.Error
	switch {
	case n > 0:
		return errors.New("wire: bytes arrived where none were expected")
	case errors.As(err, &ne) && ne.Timeout():
		return nil
	default:
		return fmt.Errorf("wire: connection ended: %w", plainEOF(err))
	}
}

// Closed waits until the server ends the connection; any byte before that is an error.
func (c *Conn) Closed() error {
	b, err := c.ReadFrame()
	switch {
	case err == io.EOF:
		return nil
	case err == nil:
		return fmt.Errorf("wire: frame %x where the end of the connection was expected", b)
	}
	return err
}

// Drop ends the connection as a crashing client does, but waits until the server has noticed: it
// half-closes and reads until the server closes its side. It returns the frames that it reads.
func (c *Conn) Drop() (late []Frame, err error) {
	defer c.Close()
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		h.CloseWrite()
	} else {
		return nil, nil
	}
	for {
		f, err := c.Next()
		if err == io.EOF {
			return late, nil
		}
		if err != nil {
			return late, err
		}
		late = append(late, f)
	}
}
