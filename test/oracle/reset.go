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

// Reset ends every session of the last run, removes every node, and records the state of both servers. It
// compares nothing. It may wait longer than Patience.
func (r *Runner) Reset() error {
	r.sessions = 0
	for _, s := range []*side{r.a, r.b} {
		s.patience = r.Patience
		s.members = len(r.a.addrs)+len(r.b.addrs) > 2
		if err := s.reset(); err != nil {
			return fmt.Errorf("reset of the server at %s: %w", s.addrs, err)
		}
	}
	return nil
}

// Close ends every session of the last run, as far as the servers allow.
func (r *Runner) Close() {
	for _, s := range []*side{r.a, r.b} {
		s.endSessions()
	}
}

func (s *side) reset() error {
	if err := s.endSessions(); err != nil {
		return err
	}
	c, err := wire.Open(s.addrs[0])
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Auth("digest", Super); err != nil {
		return err
	}
	if err := clean(c, "/"); err != nil {
		return err
	}
	members := s.members
	*s = *newSide(s.addrs, s.patience)
	s.members = members
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

// endSessions closes all sessions of the last run: otherwise one would expire during a later run.
func (s *side) endSessions() error {
	for _, c := range s.conns {
		c.Close()
	}
	for _, session := range s.all {
		c, err := wire.Dial(s.addrs[0])
		if err != nil {
			return err
		}
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
	return nil
}

// clean() removes everything below path but the built-in nodes, which get their data and ACL back.
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
	if path == configPath {
		acl = []jute.ACL{{Perms: jute.PermRead, ID: jute.ID{Scheme: "world", ID: "anyone"}}}
	}
	if _, err := c.SetACL(path, acl, -1); err != nil {
		return fmt.Errorf("setACL %q: %w", path, err)
	}
	if st.DataLength != 0 && path != configPath {
		if _, err := c.SetData(path, []byte{}, -1); err != nil {
			return fmt.Errorf("setData %q: %w", path, err)
		}
	}
	return nil
}
