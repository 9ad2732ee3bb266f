package act

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree/acl"
)

// edit() changes a contender's node with the rights of the super user. It makes a session for that, and
// closes it afterwards. `op` is the operation, and `body` its body.
func edit(ctx context.Context, on Source, q *recipe.Queue, c *recipe.Entry, op jute.OpCode,
	body []byte,
) error {
	hello := state.SessionBody{Timeout: 10_000, Owner: on.Status(0).ID, Addr: "operator"}
	rand.Read(hello.Password[:]) // never fails
	out, err := on.Do(ctx, state.Request{Op: state.OpCreateSession, Body: hello.Append(nil)})
	if err != nil {
		return err
	}
	s := out.Session
	err = change(ctx, on, &s, q.Target(c.Node), c, append(jute.AppendMultiHeader(nil, op, false, -1), body...))
	if _, end := on.Do(ctx, state.End(s.ID, s.Gen, state.EndClosed)); err == nil {
		err = end
	}
	return err
}

var (
	errGone    = port.Refuse(http.StatusNotFound, "the node is gone")
	errChanged = port.Refuse(http.StatusConflict, "the node has changed: reload and try again")
)

// changeTries is how many times change() tries.
const changeTries = 100

// change() runs an operation on the contender's node at the path `target`, unless another node has come to
// this path. The node's version cannot tell, because a new node may have the same. So change() sends a multi
// that also checks each directory above the contender's node, up to the root: it fails if a child was made
// there since change() looked. Then change() looks again, and tries again. It does not check the node's own
// directory if the node's name has a number: no other node gets that number, and new contenders may often
// come there.
func change(ctx context.Context, on Source, s *session.Session, target string, c *recipe.Entry,
	op []byte,
) error {
	for range changeTries {
		multi := slices.Clone(op)
		czxid := int64(0)
		if !on.View(func(st *state.State) {
			n, ok := st.Tree().Find(target)
			if !ok {
				return
			}
			czxid = n.Stat().Czxid
			if recipe.Numbered(c.Node) {
				n = n.Parent()
			}
			for n.Name() != "" {
				n = n.Parent()
				multi = state.AppendUnchanged(multi, n.Path(), n.Counter())
			}
		}) {
			return ask.ErrNotServing
		}
		switch czxid {
		case c.Token:
		case 0:
			return errGone
		default:
			return errChanged
		}
		done, err := on.Do(ctx, state.Request{Op: jute.OpMulti, Session: s.ID, Gen: s.Gen,
			IDs: acl.Super, Body: jute.AppendMultiHeader(multi, jute.OpError, true, -1)})
		if err != nil {
			return err
		}
		at, code := 0, done.Code
		if code == jute.OK {
			at, code = failedOp(done.Reply)
		}
		switch {
		case done.Refused, at == 0 && code == jute.BadVersion:
			return errChanged
		case at == 0 && code == jute.NoNode:
			return errGone
		case code == jute.OK:
			return nil
		case code != jute.NoNode:
			return fmt.Errorf("refused with code %d; end the session of the contender instead", code)
		}
	}
	return ask.Conflict("clients keep creating nodes above this node, so nothing was done; end the session of " +
		"the contender instead")
}

// failedOp returns which operation of a multi was refused, and its code.
func failedOp(reply []byte) (at int, code jute.ErrCode) {
	d := jute.NewDecoder(reply)
	for h := d.MultiHeader(); d.Err() == nil && !h.Done && h.Type == jute.OpError; h = d.MultiHeader() {
		if h.Err != jute.OK {
			return at, h.Err
		}
		d.Int()
		at++
	}
	return 0, jute.OK
}
