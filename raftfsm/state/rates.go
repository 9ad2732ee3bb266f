package state

import (
	"fmt"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/state/window"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
)

// A rate is a node whose data is a sliding window: the times of the last granted draws. Apply grants a draw
// if fewer draws than the limit were granted in the period before the draw. One log entry decides and records
// the draw. The draw's time is the time of the entry, or of the last draw if that is later. So a leader whose
// clock lags grants nothing twice.

// Draw asks for one draw from a rate.
type Draw struct {
	Path string
	window.Ask

	Identity string // the identity that is charged for the rate's nodes if this draw makes them
	RateBounds
}

// drawLane stands for draws in place of a session id; no client has this id. Draws share one lane of the
// stream, so a flood of them delays only draws.
const drawLane = -3

// Request returns the request for the draw. ReadDrawn reads the outcome's Reply. The outcome's Code is
// BADARGUMENTS if the node has other data, BADVERSION if its window is shorter than the draw's period,
// UNIMPLEMENTED if the cluster may not have tickets yet, and QUOTAEXCEEDED, with a text, if a bound is
// reached. Other codes are those of writing or creating the node.
func (d *Draw) Request(ids []jute.ID) Request {
	b := jute.AppendLong(jute.AppendLong(jute.AppendString(nil, d.Path), d.Limit), d.Per)
	b = jute.AppendString(append(b, d.Hash[:]...), d.Identity)
	b = jute.AppendInt(jute.AppendInt(b, d.RateBounds.All), d.RateBounds.Identity)
	return Request{Session: drawLane, Op: OpDraw, IDs: ids, Body: b}
}

func decodeDraw(body []byte) (d Draw, err error) {
	in := jute.NewDecoder(body)
	path, _ := in.String()
	d.Path = strings.Clone(path)
	d.Limit, d.Per = in.Long(), in.Long()
	for i := range d.Hash {
		d.Hash[i] = in.Byte()
	}
	identity, _ := in.String()
	d.Identity = strings.Clone(identity)
	d.RateBounds = RateBounds{All: in.Int(), Identity: in.Int()}
	if in.Err() != nil || d.Limit < 1 || d.Per < 1 || d.Per > window.Longest {
		return d, fmt.Errorf("%w: draw: %v", entries.ErrCorrupt, in.Err())
	}
	return d, nil
}

// draw() runs a Draw.
func (s *State) draw(r *Request, to Sink) error {
	d, err := decodeDraw(r.Body)
	if err != nil {
		return err
	}
	n, there := s.tree.Find(d.Path)
	w := window.New(d.Per)
	if there {
		switch {
		case !n.May(r.IDs, jute.PermWrite):
			s.out.Code = jute.NoAuth
			return nil
		case !MayBeRate(n):
			s.out.Code = jute.BadArguments
			return nil
		}
		data, _ := n.Data(acl.Super)
		if w, s.out.Code = window.Read(data, d.Per); s.out.Code != jute.OK {
			return nil
		}
	}
	answer := w.Draw(&d.Ask, s.change.Time)
	if answer.OK && !answer.Told && !s.keepWindow(r.IDs, &d, there, &w, to) {
		return nil
	}
	s.reply = answer.Append(s.reply[:0])
	s.out.Reply = s.reply
	return nil
}

// keepWindow writes a window to its node, and makes the node if it is missing.
func (s *State) keepWindow(ids []jute.ID, d *Draw, there bool, w *window.Window, to Sink) bool {
	op, nodes := jute.OpSetData, int32(0)
	if there {
		s.draft = jute.AppendInt(w.AppendBuffer(jute.AppendString(s.draft[:0], d.Path)), -1)
	} else {
		missing := Missing(s.tree, d.Path)
		op, nodes = jute.OpMulti, int32(len(missing))+1
		if why := s.begun.tooMany(d, nodes); why != "" {
			s.out.Code = jute.QuotaExceeded
			s.reply = append(s.reply[:0], why...)
			s.out.Reply = s.reply
			return false
		}
		s.draft = s.newRate(parents(missing), d.Path, w)
	}
	s.begin()
	s.change.Session, s.change.IDs = 0, ids
	reply, code, changed := s.tree.Apply(&s.change, op, s.draft, s.reply[:0])
	if s.reply = reply; changed {
		s.commit(to)
		if !there {
			s.begun.add(d.Path, d.Identity, nodes)
		}
	} else if s.out.Code = code; code == jute.OK {
		s.out.Code = FirstFailure(reply)
	}
	return changed
}

// newRate returns the transaction that makes the node of a window. The transaction begins with the operations
// in `above`, which make the parents of the node. The node is a TTL node: the server removes it once the last
// draw no longer counts.
func (s *State) newRate(above []byte, path string, w *window.Window) []byte {
	op, flags := jute.OpCreateTTL, jute.FlagPersistentTTL
	if s.change.NoTTL {
		op, flags = jute.OpCreate, jute.FlagPersistent
	}
	ops := appendCreate(above, op, path, w.Append(nil), flags)
	if op == jute.OpCreateTTL {
		ops = jute.AppendLong(ops, w.Lasts()+1)
	}
	return jute.AppendMultiHeader(ops, jute.OpError, true, -1)
}

// MayBeRate reports whether a node may hold a window. Such a node must not disappear while its draws count,
// and must not be the directory of a lock.
func MayBeRate(n tree.Ref) bool { return n.Kind() != tree.ContainerNode && n.Session() == 0 }

// counts() reports whether draws from a rate still count. It reads that from the window, because the mtime of
// the node may be earlier than the last draw: if the leader's clock lags, the node gets the leader's time,
// but the draw gets the later time of the draw before it.
func (s *State) counts(path string) bool {
	n, there := s.tree.Find(path)
	if !there || !s.ticketing { // release 0.1.0 knows no rates
		return false
	}
	data, _ := n.Data(acl.Super)
	w, code := window.Read(data, 1)
	return code == jute.OK && w.Counts(s.change.Time)
}
