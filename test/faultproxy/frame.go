package faultproxy

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// Kind is the direction and nature of a frame.
type Kind uint8

const (
	// Request goes to the server.
	Request Kind = iota + 1
	// Reply answers a request.
	Reply
	// Event is a watch event.
	Event
)

// Operation codes that the proxy distinguishes.
const (
	OpConnect      = -100 // the handshake, in both directions
	OpCreate       = 1
	OpDelete       = 2
	OpExists       = 3
	OpGetData      = 4
	OpSetData      = 5
	OpSync         = 9
	OpPing         = 11
	OpGetChildren2 = 12
	OpMulti        = 14
	OpCreate2      = 15
	OpSetAuth      = 100
	OpSetWatches   = 101
	OpSetWatches2  = 105
	OpCloseSession = -11
	maxFrame       = 16 << 20
)

// Frame describes one frame that passed.
type Frame struct {
	Kind Kind
	Op   int32
	Path string // path of the operation, or of the first operation of a multi
	Xid  int32
	Err  int32 // error code of a reply
	Conn int   // number of the connection, from 1
	Size int
	At   time.Time
}

// String describes the frame in a few words.
func (f Frame) String() string {
	kind := [...]string{"?", "request", "reply", "event"}[f.Kind]
	return fmt.Sprintf("%d %s op=%d xid=%d err=%d %s", f.Conn, kind, f.Op, f.Xid, f.Err, f.Path)
}

// Background reports whether the frame only keeps the session, and is no part of a test's work: handshake,
// pings, and requests for the root.
func (f Frame) Background() bool {
	switch f.Op {
	case OpConnect, OpPing, OpSetWatches, OpSetWatches2, OpSetAuth, OpCloseSession:
		return true
	}
	return f.Path == "/"
}

// Under reports whether the frame is about a path at or below dir.
func (f Frame) Under(dir string) bool {
	return f.Path == dir || strings.HasPrefix(f.Path, strings.TrimSuffix(dir, "/")+"/")
}

// readFrame reads one frame with its length prefix.
func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("faultproxy: frame of %d bytes", n)
	}
	b := make([]byte, 4+n)
	copy(b, head[:])
	_, err := io.ReadFull(r, b[4:])
	return b, err
}

// parseRequest describes a frame of a client.
func parseRequest(b []byte) Frame {
	d := jute.NewDecoder(b[4:])
	f := Frame{Kind: Request, Xid: d.Int(), Op: d.Int()}
	switch f.Op {
	case OpPing, OpSetAuth, OpSetWatches, OpSetWatches2, OpCloseSession:
		return f
	case OpMulti:
		d.MultiHeader()
	}
	path, _ := d.String()
	f.Path = strings.Clone(path)
	return f
}

// parseReply describes a frame of the server, except for what only its request shows.
func parseReply(b []byte) Frame {
	d := jute.NewDecoder(b[4:])
	f := Frame{Kind: Reply, Xid: d.Int()}
	d.Long() // zxid
	f.Err = d.Int()
	switch f.Xid {
	case jute.XidEvent:
		f.Kind = Event
		f.Op = d.Int() // the event's type
		d.Int()        // the client's state
		path, _ := d.String()
		f.Path = strings.Clone(path)
	case jute.XidPing:
		f.Op = OpPing
	}
	return f
}
