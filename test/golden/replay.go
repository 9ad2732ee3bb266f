package golden

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// patience bounds the wait for a frame or for the end of a connection. Some
// vectors wait for a session to expire.
const patience = 20 * time.Second

// Deviation says that a server answers differently from the recorded one.
type Deviation struct {
	Vector string // "theme/name"
	Step   int    // index of the first step that differs
	Steps  int    // how many steps are replaced; 0 means 1
	Reason string
	Want   []Step // the steps that replace the recorded ones
}

// Replay runs a vector against the server at `addr`. The deviations belong to this vector. The error names
// the step whose answer differs, or a deviation that was not needed.
func Replay(addr string, v *Vector, deviations []Deviation) error {
	r := replay{addr: addr, v: v, conns: map[string]*conn{}, syms: symbols{}}
	defer func() {
		for _, c := range r.conns {
			c.Close()
		}
	}()
	byStep := map[int]Deviation{}
	for _, d := range deviations {
		byStep[d.Step] = d
	}
	for i := 0; i < len(v.Steps); {
		d, differs := byStep[i]
		if !differs {
			if err := r.step(&v.Steps[i]); err != nil {
				return fmt.Errorf("step %d (%s %s): %w", i, v.Steps[i].Do, v.Steps[i].Conn, err)
			}
			i++
			continue
		}
		r.original = &v.Steps[i]
		for k, s := range d.Want {
			if s.Do == recorded.Do {
				s, r.original = v.Steps[i], nil
			}
			if err := r.step(&s); err != nil {
				return fmt.Errorf("step %d.%d (%s %s) of the deviation %q: %w", i, k, s.Do, s.Conn, d.Reason, err)
			}
		}
		r.original = nil
		if i += max(d.Steps, 1); i > len(v.Steps) {
			return fmt.Errorf("the deviation %q replaces more steps than there are", d.Reason)
		}
		delete(byStep, d.Step)
	}
	if len(byStep) > 0 {
		return fmt.Errorf("deviations name steps that do not exist or that another deviation replaces: %v", byStep)
	}
	return nil
}

// conn is a connection of a vector.
type conn struct {
	*wire.Conn
	greeted bool            // the connect request was sent
	sent    map[int32]asked // the requests that were sent, by xid
	seen    int64           // highest zxid met
}

type replay struct {
	addr  string
	v     *Vector
	conns map[string]*conn
	syms  symbols
	// `original` is the recorded step, while a step that replaces it is checked. If the answer matches
	// `original`, the deviation is not needed.
	original *Step
}

func (r *replay) step(s *Step) error {
	if s.Do == "sleep" {
		time.Sleep(time.Duration(s.Ms) * time.Millisecond)
		return nil
	}
	if s.Do == "open" {
		nc, err := net.DialTimeout("tcp", r.addr, patience)
		if err != nil {
			return err
		}
		c := &conn{Conn: wire.New(nc), sent: map[int32]asked{}}
		c.Timeout = patience
		r.conns[s.Conn] = c
		return nil
	}
	c := r.conns[s.Conn]
	if c == nil {
		return errors.New("no such connection")
	}
	switch s.Do {
	case "send":
		return r.send(c, s)
	case "recv":
		return r.recv(c, s)
	case "recv_raw":
		c.SetReadDeadline(time.Now().Add(patience))
		got, err := io.ReadAll(c)
		if err == nil && string(got) != string(s.bytes()) {
			err = fmt.Errorf("got %q, want %q", got, s.bytes())
		}
		return err
	case "closed_by_server":
		return c.Closed()
	case "drop":
		return c.Close()
	case "silence":
		return c.Silent(time.Duration(s.Ms) * time.Millisecond)
	}
	return fmt.Errorf("unknown step %q", s.Do)
}

func (r *replay) send(c *conn, s *Step) error {
	b, err := r.syms.substitute(s)
	if err != nil {
		return err
	}
	if s.Decoded.Xid != nil {
		q := asked{op: opByName[s.Decoded.Op], paths: []string{s.Decoded.Path}}
		if len(s.Decoded.Ops) > 0 {
			q.paths = nil
			for _, op := range s.Decoded.Ops {
				q.paths = append(q.paths, op.Path)
			}
		}
		c.sent[*s.Decoded.Xid] = q
	}
	// A server that closes the connection at the first bytes may reset it during the write. The
	// next steps check what the server does.
	c.WriteRaw(b)
	return nil
}

func (r *replay) recv(c *conn, s *Step) error {
	body, err := c.ReadFrame()
	if err != nil {
		return err
	}
	got := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	var q asked
	if c.greeted && len(body) >= jute.ReplyHeaderSize {
		q = c.sent[int32(binary.BigEndian.Uint32(body))]
	}
	c.greeted = true
	mask := r.v.Theme != "fresh"
	if rec := r.original; rec != nil && rec.Do == "recv" && rec.Conn == s.Conn {
		syms, seen := maps.Clone(r.syms), c.seen
		if syms.match(rec, q, append([]byte(nil), got...), mask, &seen) == nil {
			return errors.New("the recorded answer came, so this deviation is not needed")
		}
	}
	return r.syms.match(s, q, got, mask, &c.seen)
}
