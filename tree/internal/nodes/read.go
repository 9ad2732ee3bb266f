package nodes

import (
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
)

// The reads below append a response record to b, or answer an error code and leave b unchanged. They look a
// path up without checking it: an illegal path names no node, and "" names the root.

// AppendExists appends the Stat of the node at path. It answers NONODE, or
// BADARGUMENTS for a path with a NUL. No permission is needed to learn that a
// node exists.
func (t *Nodes) AppendExists(b []byte, _ []jute.ID, path string) ([]byte, jute.ErrCode) {
	if strings.IndexByte(path, 0) >= 0 {
		return b, jute.BadArguments
	}
	n := t.At(path)
	if n == nil {
		return b, jute.NoNode
	}
	return n.AppendStat(b), jute.OK
}

// readable() finds the node at path for a client that needs one of the bits of perm on it. It
// answers NONODE or NOAUTH.
func (t *Nodes) readable(ids []jute.ID, path string, perm int32) (*Node, jute.ErrCode) {
	n := t.At(path)
	if n == nil {
		return nil, jute.NoNode
	}
	if !n.ACL.Allows(ids, perm) {
		return nil, jute.NoAuth
	}
	return n, jute.OK
}

// AppendData appends the data and the Stat of the node at path. It answers
// NONODE or NOAUTH.
func (t *Nodes) AppendData(b []byte, ids []jute.ID, path string) ([]byte, jute.ErrCode) {
	n, code := t.readable(ids, path, jute.PermRead)
	if code != jute.OK {
		return b, code
	}
	return n.AppendStat(n.appendData(b)), jute.OK
}

// AppendACL appends the ACL and the Stat of the node at path. The client must have READ or ADMIN; only a
// client with ADMIN sees the hashes in the ACL. It answers NONODE or NOAUTH.
func (t *Nodes) AppendACL(b []byte, ids []jute.ID, path string) ([]byte, jute.ErrCode) {
	n, code := t.readable(ids, path, jute.PermRead|jute.PermAdmin)
	if code != jute.OK {
		return b, code
	}
	return n.AppendStat(n.ACL.AppendFor(b, ids)), jute.OK
}

// AppendChildren appends the names of the children of the node at path. It
// answers NONODE or NOAUTH.
func (t *Nodes) AppendChildren(b []byte, ids []jute.ID, path string) ([]byte, jute.ErrCode) {
	n, code := t.readable(ids, path, jute.PermRead)
	if code != jute.OK {
		return b, code
	}
	return n.Dir.appendList(b), jute.OK
}

// AppendChildrenStat is AppendChildren with the Stat after the names.
func (t *Nodes) AppendChildrenStat(b []byte, ids []jute.ID, path string) ([]byte, jute.ErrCode) {
	n, code := t.readable(ids, path, jute.PermRead)
	if code != jute.OK {
		return b, code
	}
	return n.AppendStat(n.Dir.appendList(b)), jute.OK
}

// AppendChildrenNumber appends how many descendants the node at path has. It
// answers NONODE or NOAUTH.
func (t *Nodes) AppendChildrenNumber(b []byte, ids []jute.ID, path string) ([]byte, jute.ErrCode) {
	n, code := t.readable(ids, path, jute.PermRead)
	if code != jute.OK {
		return b, code
	}
	count := 0
	if n.Dir != nil {
		count = n.Dir.Count
	}
	if path == "" { // for ZooKeeper "/" is a descendant of ""
		count++
	}
	return jute.AppendInt(b, int32(count)), jute.OK
}

// AnswerSize estimates the length of the answer to a read. It also returns how many steps it takes to make
// this estimate and to build a list of children or ephemeral nodes while the state is locked.
func (t *Nodes) AnswerSize(op jute.OpCode, session int64, body []byte) (size, steps int) {
	const opSize = 100 // size of a result of multiRead: header and Stat
	d := jute.NewDecoder(body)
	switch op {
	case jute.OpGetData:
		path, _ := d.String()
		if n := t.At(path); n != nil {
			size = len(n.Data)
		}
		steps = bounds.PathSteps(path)
	case jute.OpGetChildren, jute.OpGetChildren2:
		path, _ := d.String()
		if n := t.At(path); n != nil && n.Dir != nil {
			if size = n.Dir.Names; !n.Dir.long() {
				steps = n.Dir.listSteps()
			}
		}
		steps += bounds.PathSteps(path)
	case jute.OpGetACL:
		path, _ := d.String()
		if n := t.At(path); n != nil {
			size, steps = len(n.ACL.Key()), len(n.ACL.List())/4
		}
		steps += bounds.PathSteps(path)
	case jute.OpGetEphemerals:
		if h := t.Held.By[session]; h != nil {
			if size = h.Paths; !h.long() {
				steps = 4*len(h.Nodes) + size/bounds.StepBytes
			}
		}
	case jute.OpMultiRead:
		for size < t.MultiRead && steps < bounds.MaxSteps {
			h := d.MultiHeader()
			path, _ := d.String()
			d.Bool()
			if d.Err() != nil || h.Done {
				return size, steps
			}
			steps += 1 + bounds.PathSteps(path)
			n := t.At(path)
			switch {
			case n == nil:
			case h.Type != jute.OpGetChildren:
				size += opSize + len(n.Data)
			case n.Dir != nil:
				size += opSize + n.Dir.Names
			}
		}
	}
	return size, steps
}

// AppendMultiRead runs the reads in the body of a multiRead and appends their results. A read that fails does
// not stop the other reads. `steps` is what all of them cost. AppendMultiRead answers MARSHALLINGERROR if
// anything in body is not a read that multiRead allows, THROTTLEDOP if the answer would be too large, or
// BADARGUMENTS if it would cost too much.
func (t *Nodes) AppendMultiRead(b []byte, ids []jute.ID, body []byte) (out []byte, steps int,
	code jute.ErrCode) {
	d := jute.NewDecoder(body)
	start := len(b)
	var asked acl.Asker
	spend := func(n int) bool {
		if steps+n > bounds.MaxSteps {
			steps = bounds.MaxSteps
			return false
		}
		steps += n
		return true
	}
	for {
		h := d.MultiHeader()
		if d.Err() == nil && h.Done {
			return jute.AppendMultiHeader(b, jute.OpError, true, -1), steps, jute.OK
		}
		path, ok := d.String()
		d.Bool() // a watch: multiRead sets none
		if d.Err() != nil || !ok {
			return b[:start], steps, jute.MarshallingError
		}
		if h.Type != jute.OpGetData && h.Type != jute.OpGetChildren {
			return b[:start], steps, jute.MarshallingError
		}
		if !spend(bounds.OpSteps + bounds.PathSteps(path)) {
			return b[:start], steps, jute.BadArguments
		}
		code := jute.OK
		n := t.At(path)
		if n == nil {
			code = jute.NoNode
		} else {
			if !asked.Recalls(n.ACL) {
				spend(1 + len(ids)/2)
			}
			if !asked.Allows(n.ACL, ids, jute.PermRead) {
				code = jute.NoAuth
			}
		}
		at := len(b)
		switch {
		case code != jute.OK:
			b = jute.AppendMultiHeader(b, jute.OpError, false, code)
			b = jute.AppendInt(b, int32(code))
		case h.Type == jute.OpGetData:
			b = jute.AppendMultiHeader(b, h.Type, false, jute.OK)
			b = n.AppendStat(n.appendData(b))
		default:
			b = jute.AppendMultiHeader(b, h.Type, false, jute.OK)
			if !spend(n.Dir.listSteps()) {
				return b[:start], steps, jute.BadArguments
			}
			b = n.Dir.appendList(b)
		}
		if !spend((len(b) - at) / bounds.ReadBytes) {
			return b[:start], steps, jute.BadArguments
		}
		if len(b)-start > t.MultiRead {
			return b[:start], steps, jute.Throttled
		}
	}
}
