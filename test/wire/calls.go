package wire

import (
	"fmt"
	"slices"

	"github.com/zlockd/zlockd/jute"
)

// call is Call with a code other than OK turned into an error.
func (c *Conn) call(op jute.OpCode, body []byte) (jute.Decoder, error) {
	f, err := c.Call(op, body)
	if err == nil && f.Code != jute.OK {
		err = f.Code
	}
	return jute.NewDecoder(f.Body), err
}

// finish turns a decoding problem into an error, unless there is one already.
func finish(op jute.OpCode, d *jute.Decoder, err error) error {
	if err != nil {
		return err
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
func (c *Conn) CreateACL(path string, data []byte, acl []jute.ACL, flags int32) (string, error) {
	d, err := c.call(jute.OpCreate, Create(path, data, acl, flags))
	if err != nil {
		return "", err
	}
	p, _ := d.String()
	return p, finish(jute.OpCreate, &d, nil)
}

// Create2 creates a node with one of create2, createContainer and createTTL
// and returns its actual path and Stat.
func (c *Conn) Create2(op jute.OpCode, body Body) (string, jute.Stat, error) {
	d, err := c.call(op, body)
	if err != nil {
		return "", jute.Stat{}, err
	}
	p, _ := d.String()
	st := d.Stat()
	return p, st, finish(op, &d, nil)
}

// Delete deletes a node; version -1 matches any.
func (c *Conn) Delete(path string, version int32) error {
	d, err := c.call(jute.OpDelete, PathVersion(path, version))
	return finish(jute.OpDelete, &d, err)
}

// Exists returns a node's Stat.
func (c *Conn) Exists(path string, watch bool) (jute.Stat, error) {
	return c.stat(jute.OpExists, PathWatch(path, watch))
}

// SetData replaces a node's data; version -1 matches any.
func (c *Conn) SetData(path string, data []byte, version int32) (jute.Stat, error) {
	return c.stat(jute.OpSetData, SetData(path, data, version))
}

// SetACL replaces a node's ACL; version, -1 for any, is the ACL's.
func (c *Conn) SetACL(path string, acl []jute.ACL, version int32) (jute.Stat, error) {
	return c.stat(jute.OpSetACL, SetACL(path, acl, version))
}

func (c *Conn) stat(op jute.OpCode, body Body) (jute.Stat, error) {
	d, err := c.call(op, body)
	if err != nil {
		return jute.Stat{}, err
	}
	st := d.Stat()
	return st, finish(op, &d, nil)
}

// GetData returns a node's data, nil if it is null, and Stat.
func (c *Conn) GetData(path string, watch bool) ([]byte, jute.Stat, error) {
	d, err := c.call(jute.OpGetData, PathWatch(path, watch))
	if err != nil {
		return nil, jute.Stat{}, err
	}
	data, st := d.Buffer(), d.Stat()
	return data, st, finish(jute.OpGetData, &d, nil)
}

// GetACL returns a node's ACL and Stat.
func (c *Conn) GetACL(path string) ([]jute.ACL, jute.Stat, error) {
	d, err := c.call(jute.OpGetACL, Path(path))
	if err != nil {
		return nil, jute.Stat{}, err
	}
	acl, _ := d.ACL()
	st := d.Stat()
	return acl, st, finish(jute.OpGetACL, &d, nil)
}

// Children returns the sorted names of a node's children and its Stat.
func (c *Conn) Children(path string, watch bool) ([]string, jute.Stat, error) {
	d, err := c.call(jute.OpGetChildren2, PathWatch(path, watch))
	if err != nil {
		return nil, jute.Stat{}, err
	}
	names, _ := d.Strings()
	st := d.Stat()
	slices.Sort(names)
	return names, st, finish(jute.OpGetChildren2, &d, nil)
}

// Ephemerals returns the sorted paths of the session's own ephemeral nodes that begin with prefix.
func (c *Conn) Ephemerals(prefix string) ([]string, error) {
	d, err := c.call(jute.OpGetEphemerals, Path(prefix))
	if err != nil {
		return nil, err
	}
	paths, _ := d.Strings()
	slices.Sort(paths)
	return paths, finish(jute.OpGetEphemerals, &d, nil)
}

// AllChildrenNumber returns how many descendants a node has.
func (c *Conn) AllChildrenNumber(path string) (int32, error) {
	d, err := c.call(jute.OpGetAllChildrenNumber, Path(path))
	if err != nil {
		return 0, err
	}
	n := d.Int()
	return n, finish(jute.OpGetAllChildrenNumber, &d, nil)
}

// Sync waits until the server has applied everything committed so far.
func (c *Conn) Sync(path string) error {
	d, err := c.call(jute.OpSync, Path(path))
	d.String()
	return finish(jute.OpSync, &d, err)
}

// Ping waits for a ping's reply. When it returns, Events holds every event of an earlier
// change that this client learned of.
func (c *Conn) Ping() error {
	d, err := c.call(jute.OpPing, nil)
	return finish(jute.OpPing, &d, err)
}

// Auth adds an identity to the connection.
func (c *Conn) Auth(scheme, credential string) error {
	d, err := c.call(jute.OpAuth, Auth(scheme, credential))
	return finish(jute.OpAuth, &d, err)
}

// AddWatch sets a persistent watch.
func (c *Conn) AddWatch(path string, mode int32) error {
	d, err := c.call(jute.OpAddWatch, PathInt(path, mode))
	d.Int()
	return finish(jute.OpAddWatch, &d, err)
}

// RemoveWatches removes the connection's watches of a type on a path.
func (c *Conn) RemoveWatches(path string, watcherType int32) error {
	d, err := c.call(jute.OpRemoveWatches, PathInt(path, watcherType))
	return finish(jute.OpRemoveWatches, &d, err)
}

// CheckWatches reports jute.NoWatcher unless the connection has a watch of a type on a path.
func (c *Conn) CheckWatches(path string, watcherType int32) error {
	d, err := c.call(jute.OpCheckWatches, PathInt(path, watcherType))
	return finish(jute.OpCheckWatches, &d, err)
}

// SetWatches registers watches as a client does after a reconnect.
func (c *Conn) SetWatches(zxid int64, data, exist, child []string) error {
	d, err := c.call(jute.OpSetWatches, SetWatches(zxid, data, exist, child))
	return finish(jute.OpSetWatches, &d, err)
}

// SetWatches2 is SetWatches with persistent watches.
func (c *Conn) SetWatches2(zxid int64, data, exist, child, persistent, recursive []string) error {
	d, err := c.call(jute.OpSetWatches2, SetWatches2(zxid, data, exist, child, persistent, recursive))
	return finish(jute.OpSetWatches2, &d, err)
}

// WhoAmI returns the connection's identities, without passwords, sorted.
func (c *Conn) WhoAmI() ([]jute.ID, error) {
	d, err := c.call(jute.OpWhoAmI, nil)
	if err != nil {
		return nil, err
	}
	ids := make([]jute.ID, max(d.Count(8), 0))
	for i := range ids {
		ids[i].Scheme, _ = d.String()
		ids[i].ID, _ = d.String()
	}
	slices.SortFunc(ids, func(a, b jute.ID) int {
		if a.Scheme != b.Scheme {
			if a.Scheme < b.Scheme {
				return -1
			}
			return 1
		}
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return ids, finish(jute.OpWhoAmI, &d, nil)
}

// CloseSession ends the session and waits until the server has closed the connection.
func (c *Conn) CloseSession() error {
	defer c.Close()
	d, err := c.call(jute.OpCloseSession, nil)
	if err := finish(jute.OpCloseSession, &d, err); err != nil {
		return err
	}
	return c.Closed()
}
