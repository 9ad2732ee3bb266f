package history

import (
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// Body returns the record of the request, as a client sends it.
func (o *Op) Body() wire.Body {
	switch o.Op {
	case jute.OpGetData, jute.OpExists, jute.OpGetChildren2:
		return wire.PathWatch(o.Path, o.Watch)
	case jute.OpSync, jute.OpGetACL:
		return wire.Path(o.Path)
	case jute.OpAddWatch:
		return wire.PathInt(o.Path, o.Mode)
	case jute.OpSetWatches2:
		w := o.Watches
		return wire.SetWatches2(w.RelativeZxid, w.Data, w.Exist, w.Child, w.Persistent, w.Recursive)
	case jute.OpMulti:
		var ops []wire.Op
		for i := range o.Steps {
			ops = append(ops, wire.Op{Type: o.Steps[i].Op, Body: o.Steps[i].body()})
		}
		return wire.Multi(ops...)
	case jute.OpCloseSession:
		return nil
	}
	return o.body()
}

func (s *Step) body() wire.Body {
	switch s.Op {
	case jute.OpDelete, jute.OpCheck:
		return wire.PathVersion(s.Path, s.Version)
	case jute.OpSetData:
		return wire.SetData(s.Path, s.Data, s.Version)
	case jute.OpSetACL:
		return wire.SetACL(s.Path, s.acl(), s.Version)
	}
	return wire.Create(s.Path, s.Data, s.acl(), s.Flags)
}

func (s *Step) acl() []jute.ACL {
	if s.ACL == nil {
		return jute.WorldAnyone
	}
	return s.ACL
}

// Decode reads the record of a successful reply. The first error in a multi becomes the code of the multi.
func (o *Op) Decode(d *jute.Decoder) {
	switch o.Op {
	case jute.OpGetData:
		o.Value = slices.Clone(d.Buffer())
		o.Stat = stat(d)
	case jute.OpGetACL:
		acl, _ := d.ACL()
		for i := range acl {
			acl[i].ID = jute.ID{Scheme: strings.Clone(acl[i].Scheme), ID: strings.Clone(acl[i].ID.ID)}
		}
		o.ACL, o.Stat = acl, stat(d)
	case jute.OpExists:
		o.Stat = stat(d)
	case jute.OpGetChildren2:
		o.Children, _ = d.Strings()
		o.Stat = stat(d)
	case jute.OpMulti:
		for i := range o.Steps {
			h := d.MultiHeader()
			if h.Type != jute.OpError {
				o.Steps[i].decode(h.Type, d)
				continue
			}
			o.Steps[i].Code = jute.ErrCode(d.Int())
			if o.Code == jute.OK {
				o.Code = o.Steps[i].Code
			}
		}
		d.MultiHeader()
	default:
		o.decode(o.Op, d)
	}
}

// decode() reads a result of the given type.
func (s *Step) decode(result jute.OpCode, d *jute.Decoder) {
	switch result {
	case jute.OpCreate, jute.OpCreate2:
		path, _ := d.String()
		s.Created = strings.Clone(path)
	}
	switch result {
	case jute.OpCreate2, jute.OpSetData, jute.OpSetACL:
		s.Stat = stat(d)
	}
}

func stat(d *jute.Decoder) *jute.Stat {
	s := d.Stat()
	return &s
}
