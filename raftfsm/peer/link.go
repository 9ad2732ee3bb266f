package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
)

// Messages on a link. A server sends the leader its stream and its touches. The leader answers only with its
// progress. The server learns outcomes when it applies the log, like every server.
//
//	message := type u8 · length u32 · payload
const (
	LinkBlock   byte = 1 // to the leader: a block of the stream
	LinkTouches byte = 2 // to the leader: number u64, applied index u64, (session i64, age u32)*
	LinkAck     byte = 3 // from the leader: answer to touches, with their number and the leader's applied index
	LinkFull    byte = 4 // to the leader, before touches: the reason to refuse requests that need more room
)

// MaxMessage is the longest payload on a link, which is a block.
const MaxMessage = entries.MaxBlock

// WriteMessage writes one message to a link.
func WriteMessage(w *bufio.Writer, typ byte, payload []byte) error {
	if len(payload) > MaxMessage {
		return fmt.Errorf("a message of %d bytes on a link is too long: at most %d are "+
			"allowed", len(payload), MaxMessage)
	}
	var head [5]byte
	head[0] = typ
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(payload)
	return err
}

// ReadMessage reads one message from a link.
func ReadMessage(r *bufio.Reader) (typ byte, payload []byte, err error) {
	if typ, err = r.ReadByte(); err == nil {
		payload, err = readFrame(r, MaxMessage, nil)
	}
	return typ, payload, err
}

// Touches is the message in which a server says that it is alive, how far it has applied the log, and from
// which sessions it heard. The leader answers with Touches of its own.
type Touches struct {
	Number  uint64 // the leader's answer has the same number
	Applied uint64 // index of the last log entry that the sender has applied
	Heard   []state.Touch
}

// Append appends the encoding of t.
func (t *Touches) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, t.Number)
	b = binary.BigEndian.AppendUint64(b, t.Applied)
	for _, h := range t.Heard {
		b = binary.BigEndian.AppendUint64(b, uint64(h.Session))
		b = binary.BigEndian.AppendUint32(b, h.Age)
	}
	return b
}

// ParseTouches reads the payload of a LinkTouches or a LinkAck.
func ParseTouches(b []byte) (t Touches, err error) {
	if len(b) < 16 || (len(b)-16)%12 != 0 {
		return t, errors.New("bad touches on a link")
	}
	t = Touches{Number: binary.BigEndian.Uint64(b), Applied: binary.BigEndian.Uint64(b[8:]),
		Heard: make([]state.Touch, 0, (len(b)-16)/12)}
	for b = b[16:]; len(b) > 0; b = b[12:] {
		t.Heard = append(t.Heard, state.Touch{Session: int64(binary.BigEndian.Uint64(b)),
			Age: binary.BigEndian.Uint32(b[8:])})
	}
	return t, nil
}
