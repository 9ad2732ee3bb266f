package faultproxy

import (
	"errors"

	"github.com/zlockd/zlockd/test/wire"
)

// ExpireSession ends the latest session that came through the proxy, as if the server had
// expired it: the proxy attaches to the session and closes it.
func (p *Proxy) ExpireSession() error {
	p.mu.Lock()
	target, session, refuse := p.target[0], p.session, p.refuse
	p.refuse = true // keeps the client from attaching to the session before it is closed
	p.mu.Unlock()
	defer p.Refuse(refuse)
	if session.ID == 0 {
		return errors.New("faultproxy: no session seen")
	}
	c, err := wire.Dial(target)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Connect(wire.Attach(session, 0)); errors.Is(err, wire.ErrRefused) {
		return nil // the session has already ended
	} else if err != nil {
		return err
	}
	return c.CloseSession()
}
