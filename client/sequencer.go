package client

import (
	"context"
	"fmt"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// CheckSequencer asks the server whether the hold that s describes is current. It returns nil if
// so, and an error that is [fence.ErrStale] if not. The client is a [fence.Checker].
func (c *Client) CheckSequencer(ctx context.Context, s fence.Sequencer) error {
	path := s.NodePath()
	var st *zk.Stat
	err := c.steadily(ctx, path, func(e *epoch) error {
		err := e.conn.Sync(ctx, path)
		if err == nil {
			st, err = e.conn.Exists(ctx, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	if st == nil {
		return fmt.Errorf("%w: %s is gone", fence.ErrStale, path)
	}
	born, name := fence.Token(st.Czxid), recipe.Base(s.Node)
	made, _, _ := recipe.ParseName(name)
	// A downgraded hold has a newer node than its token says. The name of that node is unique, so it
	// is enough that the node exists.
	if born == s.Token || s.Mode == fence.Shared && born > s.Token &&
		(made.Maker == recipe.MakerSelf || recipe.IsPolicyNode(name)) {
		return nil
	}
	return fmt.Errorf("%w: %s has token %d", fence.ErrStale, path, born)
}

var _ fence.Checker = (*Client)(nil)
