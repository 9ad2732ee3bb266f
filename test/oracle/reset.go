package oracle

import (
	"errors"
	"fmt"
	"slices"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// Super is the credential of the super user that both servers must know.
const Super = "super:secret"

// Reset ends every session of the last run, removes every node, and takes note
// of where both servers stand.
func (r *Runner) Reset() error {
	r.sessions = 0
	for _, s := range []*side{r.a, r.b} {
		s.patience = r.Patience
		if err := s.reset(); err != nil {
			return fmt.Errorf("reset of the server at %s: %w", s.addr, err)
		}
	}
	return nil
}

// Close ends every session of the last run, as far as the servers let it.
func (r *Runner) Close() {
	for _, s := range []*side{r.a, r.b} {
		s.endSessions()
	}
}

func (s *side) reset() error {
	if err := s.endSessions(); err != nil {
		return err
	}
	c, err := wire.Open(s.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.Timeout = s.patience
	if err := c.Auth("digest", Super); err != nil {
		return err
	}
	if err := clean(c, "/"); err != nil {
		return err
	}
	*s = *newSide(s.addr, s.patience)
	for _, path := range builtin {
		if s.counters[path], err = c.Exists(path, false); err != nil {
			return err
		}
	}
	f, err := c.Call(jute.OpCloseSession, nil)
	if err == nil && f.Code != jute.OK {
		err = f.Code
	}
	s.commits, s.high = []int64{f.Zxid}, f.Zxid
	return err
}

// endSessions closes all sessions of the last run.
func (s *side) endSessions() error {
	closed := map[int64]bool{}
	for name, session := range s.sessions {
		if closed[session.ID] {
			continue
		}
		closed[session.ID] = true
		if c := s.conns[name]; c != nil && c.Conn.Session.ID == session.ID {
			c.Close()
		}
		c, err := wire.Dial(s.addr)
		if err != nil {
			return err
		}
		c.Timeout = s.patience
		switch err := c.Connect(wire.Attach(session, 0)); {
		case errors.Is(err, wire.ErrRefused):
			c.Close()
		case err != nil:
			return fmt.Errorf("attach: %w", err)
		default:
			if err := c.CloseSession(); err != nil {
				return fmt.Errorf("closeSession: %w", err)
			}
		}
	}
	for _, c := range s.conns {
		c.Close()
	}
	return nil
}

// clean removes everything below path but the built-in nodes, which get their
// data and ACL back.
func clean(c *wire.Conn, path string) error {
	names, st, err := c.Children(path, false)
	if err != nil {
		return fmt.Errorf("children of %q: %w", path, err)
	}
	for _, name := range names {
		child := path + "/" + name
		if path == "/" {
			child = "/" + name
		}
		if err := clean(c, child); err != nil {
			return err
		}
	}
	if !slices.Contains(builtin, path) {
		if err := c.Delete(path, -1); err != nil {
			return fmt.Errorf("delete %q: %w", path, err)
		}
		return nil
	}
	acl := jute.WorldAnyone
	if path == "/zookeeper/config" {
		acl = []jute.ACL{{Perms: jute.PermRead, ID: jute.ID{Scheme: "world", ID: "anyone"}}}
	}
	if _, err := c.SetACL(path, acl, -1); err != nil {
		return fmt.Errorf("setACL %q: %w", path, err)
	}
	if st.DataLength != 0 && path != "/zookeeper/config" {
		if _, err := c.SetData(path, []byte{}, -1); err != nil {
			return fmt.Errorf("setData %q: %w", path, err)
		}
	}
	return nil
}
