package jute

// Permission bits of an ACL entry.
const (
	PermRead   int32 = 1
	PermWrite  int32 = 2
	PermCreate int32 = 4
	PermDelete int32 = 8
	PermAdmin  int32 = 16
	PermAll    int32 = 31
)

// ID is an identity of a client in a scheme.
type ID struct {
	Scheme string
	ID     string
}

// ACL grants permissions to an identity.
type ACL struct {
	Perms int32
	ID
}

// WorldAnyone is the ACL that allows every client everything.
var WorldAnyone = []ACL{{PermAll, ID{"world", "anyone"}}}

// Stat is the metadata of a node that clients see. It is 68 bytes long.
type Stat struct {
	Czxid          int64 // zxid of the create
	Mzxid          int64 // zxid of the last setData, or of the create
	Ctime          int64 // time of the create, ms since 1970
	Mtime          int64 // time of the last setData, or of the create
	Version        int32 // number of setData so far
	Cversion       int32 // number of creates and deletes of children so far
	Aversion       int32 // number of setACL so far
	EphemeralOwner int64 // the session; 0: the node is not ephemeral
	DataLength     int32
	NumChildren    int32
	Pzxid          int64 // zxid of the last create or delete of a child
}

// StatSize is the length of an encoded Stat.
const StatSize = 68

// AppendStat appends s.
func AppendStat(b []byte, s *Stat) []byte {
	b = AppendLong(b, s.Czxid)
	b = AppendLong(b, s.Mzxid)
	b = AppendLong(b, s.Ctime)
	b = AppendLong(b, s.Mtime)
	b = AppendInt(b, s.Version)
	b = AppendInt(b, s.Cversion)
	b = AppendInt(b, s.Aversion)
	b = AppendLong(b, s.EphemeralOwner)
	b = AppendInt(b, s.DataLength)
	b = AppendInt(b, s.NumChildren)
	return AppendLong(b, s.Pzxid)
}

// Stat reads a Stat.
func (d *Decoder) Stat() Stat {
	return Stat{
		Czxid: d.Long(), Mzxid: d.Long(), Ctime: d.Long(), Mtime: d.Long(),
		Version: d.Int(), Cversion: d.Int(), Aversion: d.Int(),
		EphemeralOwner: d.Long(), DataLength: d.Int(), NumChildren: d.Int(), Pzxid: d.Long(),
	}
}

// AppendACL appends an ACL list.
func AppendACL(b []byte, acl []ACL) []byte {
	b = AppendInt(b, int32(len(acl)))
	for i := range acl {
		b = AppendInt(b, acl[i].Perms)
		b = AppendString(b, acl[i].Scheme)
		b = AppendString(b, acl[i].ID.ID)
	}
	return b
}

// ACL reads an ACL list; a null list is nil. It reads a null scheme as "", which no rule accepts. `nullID`
// reports whether an id was null, because ZooKeeper answers that with a code of its own.
func (d *Decoder) ACL() (acl []ACL, nullID bool) { return d.aclOnto(nil, 1<<30) }

// KeptACL is how many entries the decoder keeps at most of an ACL in a request. It is one more than a server
// accepts, which is enough to refuse the ACL.
const KeptACL = 1001

// aclOnto is like ACL(), but reuses the memory of `room`, and keeps at most `most` entries.
func (d *Decoder) aclOnto(room []ACL, most int) (acl []ACL, nullID bool) {
	n := d.Count(12)
	if n <= 0 {
		return nil, false
	}
	if acl = room[:0]; cap(acl) < n {
		acl = make([]ACL, 0, min(n, 1024))
	}
	for range n {
		var a ACL
		var ok bool
		a.Perms = d.Int()
		a.Scheme, _ = d.String()
		a.ID.ID, ok = d.String()
		if d.err != nil {
			return nil, false
		}
		nullID = nullID || !ok
		if len(acl) < most {
			acl = append(acl, a)
		}
	}
	return acl, nullID
}

// EventType is the kind of change that happened to a node.
type EventType int32

// The events that a server sends.
const (
	EventCreated         EventType = 1
	EventDeleted         EventType = 2
	EventDataChanged     EventType = 3
	EventChildrenChanged EventType = 4
)

// String returns the event's name as clients print it.
func (e EventType) String() string {
	switch e {
	case EventCreated:
		return "NodeCreated"
	case EventDeleted:
		return "NodeDeleted"
	case EventDataChanged:
		return "NodeDataChanged"
	case EventChildrenChanged:
		return "NodeChildrenChanged"
	}
	return "None"
}

// stateSyncConnected is the only state that a server sends in an event.
const stateSyncConnected = 3

// AppendEventFrame appends a whole notification frame.
func AppendEventFrame(b []byte, zxid int64, t EventType, path string) []byte {
	b, at := BeginFrame(b)
	b = AppendReplyHeader(b, XidEvent, zxid, OK)
	b = AppendInt(b, int32(t))
	b = AppendInt(b, stateSyncConnected)
	b = AppendString(b, path)
	EndFrame(b, at)
	return b
}

// ReplyHeaderSize is the length of a reply header.
const ReplyHeaderSize = 16

// AppendReplyHeader appends the header with which every reply begins.
func AppendReplyHeader(b []byte, xid int32, zxid int64, code ErrCode) []byte {
	b = AppendInt(b, xid)
	b = AppendLong(b, zxid)
	return AppendInt(b, int32(code))
}
