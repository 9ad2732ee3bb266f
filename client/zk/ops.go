package zk

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// Stat is the metadata that a server keeps of a node.
type Stat = jute.Stat

// Mode says what kind of node a create makes.
type Mode int32

// The kinds of nodes. The server extends a sequential node's name by a number of ten digits. An ephemeral
// node ends with its session. The server removes a container some time after the container's last child is
// removed. It removes a TTL node some time after the last change, if the node has no children.
const (
	Persistent              = Mode(jute.FlagPersistent)
	Ephemeral               = Mode(jute.FlagEphemeral)
	PersistentSequential    = Mode(jute.FlagPersistentSequential)
	EphemeralSequential     = Mode(jute.FlagEphemeralSequential)
	Container               = Mode(jute.FlagContainer)
	PersistentTTL           = Mode(jute.FlagPersistentTTL)
	PersistentSequentialTTL = Mode(jute.FlagPersistentSequentialTTL)
)

// Op is one operation of a transaction: a Create, Delete, SetData or Check.
type Op interface {
	code() jute.OpCode
	path() string
	append(b []byte, c chroot) []byte
}

// Create makes a node.
type Create struct {
	Path string
	Data []byte
	Mode Mode
	ACL  []ACL // nil: every client may do everything
	TTL  int64 // time to live of a TTL node, in milliseconds
}

// Delete removes a node. Version -1 stands for any version.
type Delete struct {
	Path    string
	Version int32
}

// SetData changes a node's data. Version -1 stands for any version.
type SetData struct {
	Path    string
	Data    []byte
	Version int32
}

// Check changes nothing. It fails unless the node exists and has the version. Version -1 stands for any
// version.
type Check struct {
	Path    string
	Version int32
}

func (o Create) path() string { return o.Path }

func (o Delete) path() string { return o.Path }

func (o SetData) path() string { return o.Path }

func (o Check) path() string { return o.Path }

func (o Create) code() jute.OpCode {
	switch o.Mode {
	case Container:
		return jute.OpCreateContainer
	case PersistentTTL, PersistentSequentialTTL:
		return jute.OpCreateTTL
	}
	return jute.OpCreate2
}

func (Delete) code() jute.OpCode { return jute.OpDelete }

func (SetData) code() jute.OpCode { return jute.OpSetData }

func (Check) code() jute.OpCode { return jute.OpCheck }

func (o Create) append(b []byte, c chroot) []byte {
	acl := o.ACL
	if acl == nil {
		acl = jute.WorldAnyone
	}
	b = jute.AppendString(b, c.full(o.Path))
	b = jute.AppendBuffer(b, o.Data)
	b = jute.AppendACL(b, acl)
	b = jute.AppendInt(b, int32(o.Mode))
	if o.code() == jute.OpCreateTTL {
		b = jute.AppendLong(b, o.TTL)
	}
	return b
}

func (o Delete) append(b []byte, c chroot) []byte {
	return jute.AppendInt(jute.AppendString(b, c.full(o.Path)), o.Version)
}

func (o Check) append(b []byte, c chroot) []byte {
	return jute.AppendInt(jute.AppendString(b, c.full(o.Path)), o.Version)
}

func (o SetData) append(b []byte, c chroot) []byte {
	b = jute.AppendBuffer(jute.AppendString(b, c.full(o.Path)), o.Data)
	return jute.AppendInt(b, o.Version)
}

// ACL grants permissions to an identity.
type ACL = jute.ACL

// ID is an identity.
type ID = jute.ID

// The permissions of an ACL.
const (
	PermRead   = jute.PermRead
	PermWrite  = jute.PermWrite
	PermCreate = jute.PermCreate
	PermDelete = jute.PermDelete
	PermAdmin  = jute.PermAdmin
	PermAll    = jute.PermAll
)

// WorldACL lets every client do what `perms` says.
func WorldACL(perms int32) []ACL { return []ACL{{Perms: perms, ID: ID{Scheme: "world", ID: "anyone"}}} }

// AuthACL lets the creator of the node do what `perms` says. Every client that has one of the identities of
// the creating client counts as the creator.
func AuthACL(perms int32) []ACL { return []ACL{{Perms: perms, ID: ID{Scheme: "auth"}}} }

// DigestACL lets clients that know the user's password do what `perms` says.
func DigestACL(perms int32, user, password string) []ACL {
	sum := sha1.Sum([]byte(user + ":" + password)) // the protocol prescribes SHA-1
	return []ACL{{Perms: perms, ID: ID{Scheme: "digest", ID: user + ":" + base64.StdEncoding.EncodeToString(
		sum[:])}}}
}

// Created is the node that a create made.
type Created struct {
	Path string // the path, with the number of a sequential node
	Stat Stat
}

func readCreated(d *jute.Decoder, c chroot) Created {
	p, _ := d.String()
	return Created{Path: c.own(strings.Clone(p)), Stat: d.Stat()}
}

// Result is what one operation of a transaction did.
type Result struct {
	Path string // the path of the new node, after a Create
	Stat Stat   // after a Create or SetData
}

// newMulti makes the request for a transaction. If the server refuses the transaction, the header of the
// answer has no error: the body has a code for each operation. Only the code of the operation at fault says
// something; the others are OK or RuntimeInconsistency.
func newMulti(c chroot, ops []Op) *Reply[[]Result] {
	r := &Reply[[]Result]{}
	first := ""
	if len(ops) > 0 {
		first = ops[0].path()
	}
	b := r.begin(jute.OpMulti, first, 128*len(ops))
	for _, op := range ops {
		b = op.append(jute.AppendMultiHeader(b, op.code(), false, -1), c)
	}
	r.end(jute.AppendMultiHeader(b, jute.OpError, true, -1))
	r.parse = func(d *jute.Decoder) { r.v, r.refused = readMulti(d, c, ops) }
	return r
}

func readMulti(d *jute.Decoder, c chroot, ops []Op) ([]Result, error) {
	results := make([]Result, 0, len(ops))
	var failed error
	for i := range ops {
		h := d.MultiHeader()
		if d.Err() != nil || h.Done {
			return nil, jute.ErrShort
		}
		var res Result
		switch h.Type {
		case jute.OpError:
			code := jute.ErrCode(d.Int())
			if failed == nil && code != jute.OK && code != jute.RuntimeInconsistency {
				failed = &MultiError{Index: i, Op: ops[i],
					Err: &Error{Op: ops[i].code().String(), Path: ops[i].path(),
						Code: code}}
			}
		case jute.OpCreate:
			p, _ := d.String()
			res.Path = c.own(string([]byte(p)))
		case jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
			made := readCreated(d, c)
			res = Result(made)
		case jute.OpSetData:
			res.Stat = d.Stat()
		}
		results = append(results, res)
	}
	if failed != nil {
		return nil, failed
	}
	return results, d.Err()
}

// Multi carries out all operations or none. If the server refuses an operation, the error is a *MultiError,
// which says which operation that is.
func (c *Conn) Multi(ctx context.Context, ops ...Op) ([]Result, error) {
	return do(ctx, c, newMulti(c.root, ops))
}

// MultiError is a server's refusal of a transaction. No operation of the transaction took effect.
type MultiError struct {
	Index int   // index of the operation that failed
	Op    Op    // the operation that failed
	Err   error // an *Error
}

// Error describes the operation that failed.
func (e *MultiError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the operation that failed.
func (e *MultiError) Unwrap() error { return e.Err }
