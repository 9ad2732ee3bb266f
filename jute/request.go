package jute

// Create flags.
const (
	FlagPersistent              int32 = 0
	FlagEphemeral               int32 = 1
	FlagPersistentSequential    int32 = 2
	FlagEphemeralSequential     int32 = 3
	FlagContainer               int32 = 4
	FlagPersistentTTL           int32 = 5
	FlagPersistentSequentialTTL int32 = 6
)

// MaxTTL is the longest time to live of a node, in milliseconds.
const MaxTTL = 0xffffffffff

// PasswordSize is the length of a session password.
const PasswordSize = 16

// ConnectRequest opens a connection; it has no request header.
type ConnectRequest struct {
	ProtocolVersion int32
	LastZxidSeen    int64
	Timeout         int32 // the session timeout that the client asks for, in ms
	SessionID       int64 // 0: the client asks for a new session
	Password        []byte
	ReadOnly        bool
	HasReadOnly     bool // old clients leave this byte out, and need an answer without it
}

// DecodeConnectRequest reads the first frame of a connection.
func DecodeConnectRequest(b []byte) (ConnectRequest, error) {
	d := NewDecoder(b)
	r := ConnectRequest{ProtocolVersion: d.Int(), LastZxidSeen: d.Long(), Timeout: d.Int(), SessionID: d.Long(),
		Password: d.Buffer()}
	if d.err == nil && len(d.Rest()) > 0 {
		r.HasReadOnly = true
		r.ReadOnly = d.Bool()
	}
	return r, d.err
}

// AppendConnectResponse appends the frame that answers a ConnectRequest. If `timeout` and `session` are 0,
// the answer refuses the session for good. The password always has 16 bytes, because the C client reads a
// fixed layout.
func AppendConnectResponse(b []byte, timeout int32, session int64, password [PasswordSize]byte, withReadOnly,
	readOnly bool) []byte {
	b, at := BeginFrame(b)
	b = AppendInt(b, 0)
	b = AppendInt(b, timeout)
	b = AppendLong(b, session)
	b = AppendBuffer(b, password[:])
	if withReadOnly {
		b = AppendBool(b, readOnly)
	}
	EndFrame(b, at)
	return b
}

// CreateRequest is the body of create, create2, createContainer and, with TTL,
// createTTL.
type CreateRequest struct {
	Path      string
	NoPath    bool // the path was null
	Data      []byte
	ACL       []ACL
	NullACLID bool // an id in the ACL was null
	Flags     int32
	TTL       int64
}

// CreateRequest reads the body of a create; op is its operation.
func (d *Decoder) CreateRequest(op OpCode) (r CreateRequest) {
	d.ReadCreate(op, &r)
	return r
}

// ReadCreate is like CreateRequest, for many requests in a row: it reuses the memory of r's ACL.
func (d *Decoder) ReadCreate(op OpCode, r *CreateRequest) {
	var ok bool
	r.Path, ok = d.String()
	r.NoPath = !ok
	r.Data = d.Buffer()
	r.ACL, r.NullACLID = d.aclOnto(r.ACL, KeptACL)
	r.Flags, r.TTL = d.Int(), 0
	if op == OpCreateTTL {
		r.TTL = d.Long()
	}
}

// PathVersion is the body of delete and check, and a part of setData and setACL.
type PathVersion struct {
	Path    string
	NoPath  bool
	Version int32
}

// PathVersion reads the body of a delete or check.
func (d *Decoder) PathVersion() (r PathVersion) {
	var ok bool
	r.Path, ok = d.String()
	r.NoPath = !ok
	r.Version = d.Int()
	return r
}

// SetDataRequest is the body of setData.
type SetDataRequest struct {
	PathVersion
	Data []byte
}

// SetDataRequest reads the body of a setData.
func (d *Decoder) SetDataRequest() (r SetDataRequest) {
	var ok bool
	r.Path, ok = d.String()
	r.NoPath = !ok
	r.Data = d.Buffer()
	r.Version = d.Int()
	return r
}

// SetACLRequest is the body of setACL.
type SetACLRequest struct {
	PathVersion
	ACL       []ACL
	NullACLID bool
}

// SetACLRequest reads the body of a setACL.
func (d *Decoder) SetACLRequest() (r SetACLRequest) {
	var ok bool
	r.Path, ok = d.String()
	r.NoPath = !ok
	r.ACL, r.NullACLID = d.aclOnto(nil, KeptACL)
	r.Version = d.Int()
	return r
}

// MultiHeader comes before each operation of a multi, and at its end.
type MultiHeader struct {
	Type OpCode
	Done bool
	Err  ErrCode
}

// MultiHeader reads a header inside a multi.
func (d *Decoder) MultiHeader() MultiHeader {
	return MultiHeader{OpCode(d.Int()), d.Bool(), ErrCode(d.Int())}
}

// AppendMultiHeader appends a header inside a multi's result.
func AppendMultiHeader(b []byte, op OpCode, done bool, code ErrCode) []byte {
	b = AppendInt(b, int32(op))
	b = AppendBool(b, done)
	return AppendInt(b, int32(code))
}

// SetWatches is the body of setWatches and setWatches2. It lists the watches that a client had on its last
// connection.
type SetWatches struct {
	RelativeZxid          int64
	Data, Exist, Child    []string
	Persistent, Recursive []string
}

// Watch modes of addWatch.
const (
	AddWatchPersistent int32 = 0
	AddWatchRecursive  int32 = 1
)

// Watcher types of removeWatches and checkWatches.
const (
	WatcherChildren            int32 = 1
	WatcherData                int32 = 2
	WatcherAny                 int32 = 3
	WatcherPersistent          int32 = 4
	WatcherPersistentRecursive int32 = 5
)
