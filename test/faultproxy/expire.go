package faultproxy

import (
	"encoding/binary"
	"errors"
	"net"
	"time"
)

// ExpireSession ends the latest session that came through the proxy, as if the server had
// expired it: the proxy attaches to the session and closes it.
func (p *Proxy) ExpireSession() error {
	p.mu.Lock()
	target, id, refuse := p.target[0], p.id, p.refuse
	p.refuse = true // until then the client must not take the session back
	p.mu.Unlock()
	defer p.Refuse(refuse)
	if id == nil || binary.BigEndian.Uint64(id) == 0 {
		return errors.New("faultproxy: no session seen")
	}
	c, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	// protocol, zxid, timeout, session, password
	req := binary.BigEndian.AppendUint32(nil, 44)
	req = append(req, make([]byte, 12)...)
	req = binary.BigEndian.AppendUint32(req, 4000)
	req = append(req, id...)
	if _, err := c.Write(req); err != nil {
		return err
	}
	b, err := readFrame(c)
	if err != nil {
		return err
	}
	if len(b) < 20 || binary.BigEndian.Uint64(b[12:]) == 0 {
		return nil // the session was over already
	}
	closing := binary.BigEndian.AppendUint32(nil, 8)
	closing = binary.BigEndian.AppendUint32(closing, 1)
	op := int32(OpCloseSession)
	closing = binary.BigEndian.AppendUint32(closing, uint32(op))
	if _, err := c.Write(closing); err != nil {
		return err
	}
	for { // until the reply; events may come first
		b, err := readFrame(c)
		if err != nil {
			return err
		}
		if f := parseReply(b); f.Kind == Reply && f.Xid == 1 {
			return nil
		}
	}
}
