package wire

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/zlockd/zlockd/jute"
)

// do() sends a request and reads the record of its reply with read(). If `read` is nil, the reply has no
// record. A code other than OK becomes an error. It is also an error if read() does not understand the
// record, or does not read it to its end.
func (c *Conn) do(op jute.OpCode, body []byte, read func(d *jute.Decoder)) error {
	f, err := c.Call(op, body)
	switch {
	case err != nil:
		return err
	case f.Code != jute.OK:
		return f.Code
	}
	d := jute.NewDecoder(f.Body)
	if read != nil {
		read(&d)
	}
	if d.Err() != nil {
		return fmt.Errorf("wire: response of %v: %w", op, d.Err())
	}
	if n := len(d.Rest()); n > 0 {
		return fmt.Errorf("wire: response of %v has %d bytes too many", op, n)
	}
	return nil
}

// Create creates a node open to all users and returns its actual path.
func (c *Conn) Create(path string, data []byte, flags int32) (string, error) {
	return c.CreateACL(path, data, jute.WorldAnyone, flags)
}

// CreateACL creates a node and returns its actual path.
func (c *Conn) CreateACL(path string, data []byte, acl []jute.ACL, flags int32) (actual string, err error) {
	err = c.do(jute.OpCreate, Create(path, data, acl, flags), func(d *jute.Decoder) { actual, _ = d.String() })
	return actual, err
}

// Create2 creates a node with one of create2, createContainer and createTTL
// and returns its actual path and Stat.
func (c *Conn) Create2(op jute.OpCode, body Body) (actual string, st jute.Stat, err error) {
	err = c.do(op, body, func(d *jute.Decoder) {
		actual, _ = d.String()
		st = d.Stat()
	})
	return actual, st, err
}

// Delete deletes a node; version -1 matches any.
func (c *Conn) Delete(path string, version int32) error {
	return c.do(jute.OpDelete, PathVersion(path, version), nil)
}

// Exists returns a node's Stat.
func (c *Conn) Exists(path string, watch bool) (jute.Stat, error) {
	return c.stat(jute.OpExists, PathWatch(path, watch))
}

// SetData replaces a node's data; version -1 matches any.
func (c *Conn) SetData(path string, data []byte, version int32) (jute.Stat, error) {
	return c.stat(jute.OpSetData, SetData(path, data, version))
}

// SetACL replaces a node's ACL. The version is that of the ACL; -1 matches any.
func (c *Conn) SetACL(path string, acl []jute.ACL, version int32) (jute.Stat, error) {
	return c.stat(jute.OpSetACL, SetACL(path, acl, version))
}

func (c *Conn) stat(op jute.OpCode, body Body) (st jute.Stat, err error) {
	err = c.do(op, body, func(d *jute.Decoder) { st = d.Stat() })
	return st, err
}

// GetData returns a node's data and its Stat. The data are nil if they are null.
func (c *Conn) GetData(path string, watch bool) (data []byte, st jute.Stat, err error) {
	err = c.do(jute.OpGetData, PathWatch(path, watch), func(d *jute.Decoder) { data, st = d.Buffer(), d.Stat() })
	return data, st, err
}

// GetACL returns a node's ACL and Stat.
func (c *Conn) GetACL(path string) (acl []jute.ACL, st jute.Stat, err error) {
	err = c.do(jute.OpGetACL, Path(path), func(d *jute.Decoder) {
		acl, _ = d.ACL()
		st = d.Stat()
	})
	return acl, st, err
}

// Children returns the sorted names of a node's children and its Stat.
func (c *Conn) Children(path string, watch bool) (names []string, st jute.Stat, err error) {
	err = c.do(jute.OpGetChildren2, PathWatch(path, watch), func(d *jute.Decoder) {
		names, _ = d.Strings()
		st = d.Stat()
	})
	slices.Sort(names)
	return names, st, err
}

// Ephemerals returns the sorted paths of the session's own ephemeral nodes that begin with prefix.
func (c *Conn) Ephemerals(prefix string) (paths []string, err error) {
	err = c.do(jute.OpGetEphemerals, Path(prefix), func(d *jute.Decoder) { paths, _ = d.Strings() })
	slices.Sort(paths)
	return paths, err
}

// AllChildrenNumber returns how many descendants a node has.
func (c *Conn) AllChildrenNumber(path string) (n int32, err error) {
	err = c.do(jute.OpGetAllChildrenNumber, Path(path), func(d *jute.Decoder) { n = d.Int() })
	return n, err
}

// Sync waits until the server has applied everything committed so far.
func (c *Conn) Sync(path string) error {
	return c.do(jute.OpSync, Path(path), func(d *jute.Decoder) { d.String() })
}

// Ping waits for a ping's reply. When it returns, Events holds every event that the server sent before the
// reply.
func (c *Conn) Ping() error { return c.do(jute.OpPing, nil, nil) }

// Auth adds an identity to the connection.
func (c *Conn) Auth(scheme, credential string) error {
	return c.do(jute.OpAuth, Auth(scheme, credential), nil)
}

// AddWatch sets a persistent watch.
func (c *Conn) AddWatch(path string, mode int32) error {
	return c.do(jute.OpAddWatch, PathInt(path, mode), func(d *jute.Decoder) { d.Int() })
}

// SetWatches registers watches as a client does after a reconnect.
func (c *Conn) SetWatches(zxid int64, data, exist, child []string) error {
	return c.do(jute.OpSetWatches, SetWatches(zxid, data, exist, child), nil)
}

// SetWatches2 is SetWatches with persistent watches.
func (c *Conn) SetWatches2(zxid int64, data, exist, child, persistent, recursive []string) error {
	return c.do(jute.OpSetWatches2, SetWatches2(zxid, data, exist, child, persistent, recursive), nil)
}

// WhoAmI returns the connection's identities, without passwords, sorted.
func (c *Conn) WhoAmI() (ids []jute.ID, err error) {
	err = c.do(jute.OpWhoAmI, nil, func(d *jute.Decoder) {
		ids = make([]jute.ID, max(d.Count(8), 0))
		for i := range ids {
			ids[i].Scheme, _ = d.String()
			ids[i].ID, _ = d.String()
		}
	})
	slices.SortFunc(ids, func(a, b jute.ID) int {
		return cmp.Or(cmp.Compare(a.Scheme, b.Scheme), cmp.Compare(a.ID, b.ID))
	})
	return ids, err
}

// CloseSession ends the session and waits until the server has closed the connection.
func (c *Conn) CloseSession() error {
	defer c.Close()
	if err := c.do(jute.OpCloseSession, nil, nil); err != nil {
		return err
	}
	return c.Closed()
}
