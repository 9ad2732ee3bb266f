package zkfiles

import (
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/jute"
)

// OpCreateSession is the only operation in logs that clients never send as a request.
const OpCreateSession jute.OpCode = -10

// Txn is a transaction: the changes that a server had decided on when it logged them.
type Txn struct {
	Session int64
	Cxid    int32
	Zxid    int64
	Time    int64 // ms since 1970
	Type    jute.OpCode
	Ops     []Op    // one operation, or the operations of a multi
	Digest  *Digest // digest of the tree after the transaction; nil: the log has none
}

// Op is one change. Type determines which fields are used.
type Op struct {
	Type      jute.OpCode
	Path      string
	Data      []byte
	ACL       []jute.ACL
	Ephemeral bool
	Cversion  int32 // the parent's cversion after a create; -1: its old cversion plus 1
	TTL       int64
	Version   int32    // the new version, or the version that a check requires
	Err       int32    // the code of an OpError
	Timeout   int32    // timeout of a session
	Paths     []string // paths that a closeSession deletes besides the session's own nodes
}

// Create reports whether the operation makes a node.
func (o *Op) Create() bool {
	switch o.Type {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateTTL, jute.OpCreateContainer:
		return true
	}
	return false
}

var (
	errMulti = errors.New("a multi contains a multi")
	errMore  = errors.New("bytes follow the record")
)

// decodeTxn reads a record of a log. The transaction shares the record's memory.
func decodeTxn(b []byte) (*Txn, error) {
	d := jute.NewDecoder(b)
	t := &Txn{Session: d.Long(), Cxid: d.Int(), Zxid: d.Long(), Time: d.Long(), Type: jute.OpCode(d.Int())}
	if d.Err() != nil {
		return nil, d.Err()
	}
	body := d
	if t.Type == jute.OpMulti {
		for range d.Count(8) {
			kind := jute.OpCode(d.Int())
			sub := jute.NewDecoder(d.Buffer())
			if d.Err() != nil {
				break
			}
			if kind == jute.OpMulti {
				return nil, errMulti
			}
			op, err := decodeOp(&sub, kind)
			if err != nil {
				return nil, err
			}
			t.Ops = append(t.Ops, op)
		}
	} else {
		op, err := decodeOp(&d, t.Type)
		if err != nil && t.Type == jute.OpCreate {
			// ZooKeeper before 3.4 did not write the parent's cversion, so read the create without it.
			d, op = body, Op{Type: t.Type}
			op.create(&d)
			op.Ephemeral, op.Cversion, err = d.Bool(), -1, d.Err()
		}
		if err != nil {
			return nil, err
		}
		t.Ops = append(t.Ops, op)
	}
	if d.Err() != nil {
		return nil, d.Err()
	}
	switch len(d.Rest()) {
	case 0:
		return t, nil
	case 12:
		t.Digest = &Digest{Zxid: t.Zxid, Version: d.Int(), Sum: uint64(d.Long())}
		return t, nil
	}
	return nil, errMore
}

// create() reads the fields that all creates begin with.
func (o *Op) create(d *jute.Decoder) {
	o.Path, _ = d.String()
	o.Data = d.Buffer()
	o.ACL, _ = d.ACL()
}

func decodeOp(d *jute.Decoder, kind jute.OpCode) (Op, error) {
	o := Op{Type: kind}
	switch kind {
	case jute.OpCreate, jute.OpCreate2:
		o.create(d)
		o.Ephemeral, o.Cversion = d.Bool(), d.Int()
	case jute.OpCreateTTL:
		o.create(d)
		o.Cversion, o.TTL = d.Int(), d.Long()
	case jute.OpCreateContainer:
		o.create(d)
		o.Cversion = d.Int()
	case jute.OpDelete, jute.OpDeleteContainer:
		o.Path, _ = d.String()
	case jute.OpSetData, jute.OpReconfig:
		r := d.SetDataRequest()
		o.Path, o.Data, o.Version = r.Path, r.Data, r.Version
	case jute.OpSetACL:
		o.Path, _ = d.String()
		o.ACL, _ = d.ACL()
		o.Version = d.Int()
	case jute.OpCheck:
		r := d.PathVersion()
		o.Path, o.Version = r.Path, r.Version
	case jute.OpError:
		o.Err = d.Int()
	case OpCreateSession:
		o.Timeout = d.Int()
	case jute.OpCloseSession:
		o.Paths = closePaths(d)
	default:
		return o, fmt.Errorf("the transaction has type %d, which no ZooKeeper up to 3.9 writes", kind)
	}
	return o, d.Err()
}

// closePaths reads the paths of a closeSession. Before 3.6 a closeSession had no body, and a digest may
// follow at once.
func closePaths(d *jute.Decoder) []string {
	switch len(d.Rest()) {
	case 0, 12:
		peek := *d
		if len(d.Rest()) == 0 || peek.Int() == digestVersion {
			return nil
		}
	}
	list, _ := d.Strings()
	return list
}

// encode() returns the transaction's record, as a log has it.
func (t *Txn) encode() []byte {
	b := jute.AppendLong(nil, t.Session)
	b = jute.AppendInt(b, t.Cxid)
	b = jute.AppendLong(b, t.Zxid)
	b = jute.AppendLong(b, t.Time)
	b = jute.AppendInt(b, int32(t.Type))
	if t.Type == jute.OpMulti {
		b = jute.AppendInt(b, int32(len(t.Ops)))
		for i := range t.Ops {
			b = jute.AppendInt(b, int32(t.Ops[i].Type))
			b = jute.AppendBuffer(b, t.Ops[i].append([]byte{}))
		}
	} else {
		for i := range t.Ops {
			b = t.Ops[i].append(b)
		}
	}
	if t.Digest != nil {
		b = jute.AppendInt(b, t.Digest.Version)
		b = jute.AppendLong(b, int64(t.Digest.Sum))
	}
	return b
}

func (o *Op) append(b []byte) []byte {
	if o.Create() {
		b = jute.AppendACL(jute.AppendBuffer(jute.AppendString(b, o.Path), o.Data), o.ACL)
	}
	switch o.Type {
	case jute.OpCreate, jute.OpCreate2:
		return jute.AppendInt(jute.AppendBool(b, o.Ephemeral), o.Cversion)
	case jute.OpCreateTTL:
		return jute.AppendLong(jute.AppendInt(b, o.Cversion), o.TTL)
	case jute.OpCreateContainer:
		return jute.AppendInt(b, o.Cversion)
	case jute.OpDelete, jute.OpDeleteContainer:
		return jute.AppendString(b, o.Path)
	case jute.OpSetData, jute.OpReconfig:
		return jute.AppendInt(jute.AppendBuffer(jute.AppendString(b, o.Path), o.Data), o.Version)
	case jute.OpSetACL:
		return jute.AppendInt(jute.AppendACL(jute.AppendString(b, o.Path), o.ACL), o.Version)
	case jute.OpCheck:
		return jute.AppendInt(jute.AppendString(b, o.Path), o.Version)
	case jute.OpError:
		return jute.AppendInt(b, o.Err)
	case OpCreateSession:
		return jute.AppendInt(b, o.Timeout)
	case jute.OpCloseSession:
		return jute.AppendStrings(b, o.Paths)
	}
	return b
}
