package zk

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"

	"github.com/zlockd/zlockd/jute"
)

// stage is how far a call is.
type stage uint8

const (
	waiting stage = iota // for a connection
	sent                 // on the present connection, unanswered
	over                 // done is closed
)

// call is one request and its outcome.
type call struct {
	op     jute.OpCode
	path   string // as the caller named it
	frame  []byte // the whole frame; the xid is filled in when it is sent
	xid    int32  // 0: a fresh one each time
	inner  bool   // made for one connection
	repeat bool   // harmless if done twice: sent again after a lost connection
	keep   bool   // parse keeps the memory it is given, that of a list
	absent bool   // "no node" is an answer, not an error
	// parse reads the body of a good answer, in the goroutine of the connection.
	parse   func(d *jute.Decoder)
	refused error // set by parse: the header has no error, but the body has
	// settled, if not nil, runs before done is closed, with Conn.mu held.
	settled func(err error)

	arms   bool // a watch, if the answer is good
	kind   watchKind
	target string // the watched path, as the server knows it
	watch  *Watch // set before done is closed

	done chan struct{}
	err  error // valid when done is closed

	// Guarded by Conn.mu.
	stage stage
	left  bool // the caller no longer waits
	tries int  // that failed between servers
}

// begin makes the frame of a call up to its path.
func (r *call) begin(op jute.OpCode, path string, size int) []byte {
	r.op, r.path, r.done = op, path, make(chan struct{})
	b, _ := jute.BeginFrame(make([]byte, 0, size+20))
	b = jute.AppendInt(b, 0)
	return jute.AppendInt(b, int32(op))
}

func (r *call) end(b []byte) {
	jute.EndFrame(b, 0)
	r.frame = b
}

// stamp writes the xid into the frame.
func (r *call) stamp(xid int32) { binary.BigEndian.PutUint32(r.frame[4:], uint32(xid)) }

// finish ends the call, unless it is over. Conn.mu is held.
func (r *call) finish(err error) {
	if r.stage == over {
		return
	}
	r.stage, r.err = over, err
	if r.settled != nil {
		r.settled(err)
	}
	close(r.done)
}

// Reply is the answer to a request of a [Pipe], present or future.
type Reply[T any] struct {
	call
	c *Conn
	v T
}

// Done returns a channel that closes when the answer is there, or certainly never comes.
func (r *Reply[T]) Done() <-chan struct{} { return r.done }

// Wait returns the answer, or the error of ctx if ctx ends first. Then the Conn withdraws a request
// that it has not sent yet; for a request that it has sent, the error is ErrUncertain, unless the
// request only reads. A caller may call Wait again to learn the outcome.
func (r *Reply[T]) Wait(ctx context.Context) (T, error) {
	var none T
	select {
	case <-r.done:
	default:
		select {
		case <-r.done:
		case <-ctx.Done():
			if err := r.c.leave(ctx, &r.call); err != nil {
				return none, err
			}
		}
	}
	if r.err != nil {
		return none, r.err
	}
	return r.v, nil
}

// Watch returns the watch that a read set, once Wait has returned without an error.
func (r *Reply[T]) Watch() *Watch { return r.watch }

// Pipe collects requests for one flight: the Conn sends them on one connection, one after the
// other with nothing between them, and the server answers them in that order. If the connection is
// lost, the Conn repeats reads, and writes fail with ErrConnectionLost.
type Pipe struct {
	c     *Conn
	calls []*call
}

// Pipe returns an empty Pipe.
func (c *Conn) Pipe() *Pipe { return &Pipe{c: c} }

// Send sends the collected requests. It does not wait: without a connection the Conn sends them as
// soon as there is one.
func (p *Pipe) Send() {
	p.c.submit(false, p.calls...)
	p.calls = nil
}

// SendSoon is Send for requests without a waiting caller. If another request follows at once, both
// leave together, and the server may do both in one step.
func (p *Pipe) SendSoon() {
	p.c.submit(true, p.calls...)
	p.calls = nil
}

func add[T any](p *Pipe, r *Reply[T]) *Reply[T] {
	r.c = p.c
	p.calls = append(p.calls, &r.call)
	return r
}

// do sends one request and waits for its answer.
func do[T any](ctx context.Context, c *Conn, r *Reply[T]) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, err
	}
	r.c = c
	c.submit(false, &r.call)
	return r.Wait(ctx)
}

// Mode says what kind of node a create makes.
type Mode int32

// The kinds of nodes. The server extends a sequential node's name by a number of ten digits. An
// ephemeral node goes with its session. The server removes a container some time after its last
// child, and a TTL node some time after its last change if it has no children.
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
	TTL  int64 // in milliseconds, of a TTL node
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

// Check changes nothing, and fails unless the node exists and has the version.
// Version -1 stands for any.
type Check struct {
	Path    string
	Version int32
}

func (o Create) path() string  { return o.Path }
func (o Delete) path() string  { return o.Path }
func (o SetData) path() string { return o.Path }
func (o Check) path() string   { return o.Path }

func (o Create) code() jute.OpCode {
	switch o.Mode {
	case Container:
		return jute.OpCreateContainer
	case PersistentTTL, PersistentSequentialTTL:
		return jute.OpCreateTTL
	}
	return jute.OpCreate2
}
func (Delete) code() jute.OpCode  { return jute.OpDelete }
func (SetData) code() jute.OpCode { return jute.OpSetData }
func (Check) code() jute.OpCode   { return jute.OpCheck }

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

// Result is what one operation of a transaction did.
type Result struct {
	Path string // of a Create: what was made
	Stat Stat   // of a Create or SetData
}

// newMulti makes the request. The header of its answer has no error even if the server refused it;
// then every operation has a code, and those that are not to blame have RuntimeInconsistency or OK.
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
				failed = &MultiError{Index: i, Op: ops[i], Err: &Error{Op: ops[i].code().String(), Path: ops[i].path(),
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

// Multi does all of the operations or none. If the server refuses one, the error is a *MultiError
// that says which.
func (c *Conn) Multi(ctx context.Context, ops ...Op) ([]Result, error) {
	return do(ctx, c, newMulti(c.root, ops))
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

// WorldACL lets every client do what perms says.
func WorldACL(perms int32) []ACL { return []ACL{{Perms: perms, ID: ID{Scheme: "world", ID: "anyone"}}} }

// AuthACL lets the creator of the node do what perms says: every client with an identity that the
// creator presented before.
func AuthACL(perms int32) []ACL { return []ACL{{Perms: perms, ID: ID{Scheme: "auth"}}} }

// DigestACL lets clients that know the user's password do what perms says.
func DigestACL(perms int32, user, password string) []ACL {
	sum := sha1.Sum([]byte(user + ":" + password)) // as the protocol has it
	return []ACL{{Perms: perms, ID: ID{Scheme: "digest", ID: user + ":" + base64.StdEncoding.EncodeToString(
		sum[:])}}}
}
