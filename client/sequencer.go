package client

import (
	"context"
	"fmt"

	"github.com/zlockd/zlockd/client/fence"
)

// CheckSequencer asks the server whether the hold that s describes is current:
// nil if so, an error that is [fence.ErrStale] if not. The client is a [fence.Checker].
func (c *Client) CheckSequencer(ctx context.Context, s fence.Sequencer) error {
	path := s.NodePath()
	if err := checkPath(path); err != nil {
		return err
	}
	e, err := c.epoch(ctx)
	if err != nil {
		return err
	}
	if err := c.sync(ctx, e, path); err != nil {
		return publicErr(err)
	}
	st, err := c.exists(ctx, e, path)
	if err != nil {
		return publicErr(err)
	}
	if st == nil {
		return fmt.Errorf("%w: %s is gone", fence.ErrStale, path)
	}
	born := fence.Token(st.Czxid)
	// A downgraded hold has a younger node with the token of the older one; its
	// name is unique, so that it exists is enough.
	if born == s.Token || s.Mode == fence.Shared && born > s.Token && hasOwnID(s.Node) {
		return nil
	}
	return fmt.Errorf("%w: %s has token %d", fence.ErrStale, path, born)
}

func hasOwnID(node string) bool {
	id, ok := findID(baseName(node))
	_, ours := id.session()
	return ok && ours
}

var _ fence.Checker = (*Client)(nil)
