package oracle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// Step is one action of a program on one connection. Which fields count depends on Op.
type Step struct {
	Conn   string // name of the connection
	Op     string // "create", …; see ops
	Joined bool   // sent right after the step before, without waiting for a reply

	Path     string
	NullPath bool
	Data     []byte // nil is null
	// "perms:scheme:id,…"; an entry without the second colon has a null id; "null" is a null list
	ACL     string
	Flags   int32
	TTL     int64
	Version int32
	Watch   bool
	Mode    int32       // mode of addWatch; type of removeWatches and checkWatches
	Lists   [5][]string // the lists of paths of setWatches and setWatches2
	Back    int         // the zxid to send: that of the last change but Back; -1: higher than any; -2: zero
	Scheme  string
	Cred    string
	Code    int32  // for the operation "op": any operation code
	Ops     []Step // the operations of a multi or multiRead

	Session  string // of attach: the name of the connection whose session it takes
	Timeout  int32
	Password string // of connect and attach: "", or "null", "empty", "short", "wrong"
	Old      bool   // of connect and attach: the request lacks the read-only byte

	ReadOnly bool // of connect and attach: the client accepts a read-only session

	Xid   int32  // xid to send; 0: the one that a client would choose
	Cut   int    // how many bytes are missing at the end of the record
	Extra string // bytes sent after the record
	Patch string // replaces the bytes of the record from At onwards
	At    int
}

// Program is a list of steps.
type Program []Step

// opInfo describes an operation's encoding.
type opInfo struct {
	code   jute.OpCode
	fields string // the fields of the record, in order; a script shows the same fields
	write  bool   // a success is a change with its own zxid
	solo   bool   // sent alone: it may end the connection, or the runner must ask the server about it
}

var ops = map[string]opInfo{
	"create":          {jute.OpCreate, "path data acl flags", true, false},
	"create2":         {jute.OpCreate2, "path data acl flags", true, false},
	"createContainer": {jute.OpCreateContainer, "path data acl flags", true, false},
	"createTTL":       {jute.OpCreateTTL, "path data acl flags ttl", true, false},
	"delete":          {jute.OpDelete, "path version", true, false},
	"deleteContainer": {jute.OpDeleteContainer, "path", false, false},
	"setData":         {jute.OpSetData, "path data version", true, false},
	"setACL":          {jute.OpSetACL, "path acl version", true, false},
	"exists":          {jute.OpExists, "path watch", false, false},
	"getData":         {jute.OpGetData, "path watch", false, false},
	"getChildren":     {jute.OpGetChildren, "path watch", false, false},
	"getChildren2":    {jute.OpGetChildren2, "path watch", false, false},
	"getACL":          {jute.OpGetACL, "path", false, false},
	"getAllChildren":  {jute.OpGetAllChildrenNumber, "path", false, false},
	"getEphemerals":   {jute.OpGetEphemerals, "path", false, false},
	"sync":            {jute.OpSync, "path", false, false},
	"check":           {jute.OpCheck, "path version", false, false},
	"multi":           {jute.OpMulti, "ops", true, false},
	"multiRead":       {jute.OpMultiRead, "ops", false, false},
	"addWatch":        {jute.OpAddWatch, "path mode", false, false},
	"removeWatches":   {jute.OpRemoveWatches, "path mode", false, false},
	"checkWatches":    {jute.OpCheckWatches, "path mode", false, true},
	"setWatches":      {jute.OpSetWatches, "back data3", false, true},
	"setWatches2":     {jute.OpSetWatches2, "back data5", false, true},
	"whoAmI":          {jute.OpWhoAmI, "", false, false},
	"ping":            {jute.OpPing, "", false, false},
	"auth":            {jute.OpAuth, "scheme cred", false, true},
	"sasl":            {jute.OpSASL, "data", false, true},
	"reconfig":        {jute.OpReconfig, "", false, false},
	"closeSession":    {jute.OpCloseSession, "", true, true},
	"op":              {0, "code", false, true},
	// These bytes are not a request, so the server closes the connection.
	"raw":     {0, "data", false, true},
	"connect": {0, "timeout password old readOnly back", false, true},
	"attach":  {0, "session timeout password old readOnly back", false, true},
	"drop":    {0, "", false, true},
	// This step restarts the second server when every request is answered. Its Conn is "*".
	"restart": {0, "", false, true},
}

// encode() returns the record of a step. zxid() returns the zxid that the step asks for in its field Back.
func (s *Step) encode(zxid func(back int) int64) wire.Body {
	var b wire.Body
	if s.Op == "auth" {
		b = b.Int(0)
	}
	for f := range strings.FieldsSeq(ops[s.Op].fields) {
		switch f {
		case "path":
			if s.NullPath {
				b = b.Null()
			} else {
				b = b.Str(s.Path)
			}
		case "data":
			b = b.Buf(s.Data)
		case "acl":
			b = appendACL(b, s.ACL)
		case "flags":
			b = b.Int(s.Flags)
		case "ttl":
			b = b.Long(s.TTL)
		case "version":
			b = b.Int(s.Version)
		case "mode":
			b = b.Int(s.Mode)
		case "watch":
			b = b.Bool(s.Watch)
		case "back":
			b = b.Long(zxid(s.Back))
		case "data3":
			for _, l := range s.Lists[:3] {
				b = b.Strs(l...)
			}
		case "data5":
			for _, l := range s.Lists {
				b = b.Strs(l...)
			}
		case "scheme":
			b = b.Str(s.Scheme)
		case "cred":
			b = b.Buf([]byte(s.Cred))
		case "ops":
			var list []wire.Op
			for i := range s.Ops {
				list = append(list, wire.Op{Type: ops[s.Ops[i].Op].code, Body: s.Ops[i].encode(zxid)})
			}
			b = append(b, wire.Multi(list...)...)
		}
	}
	if s.Op == "reconfig" {
		b = b.Str("server.9=127.0.0.1:1:2").Null().Null().Long(-1)
	}
	return s.damaged(b)
}

// damaged() returns the record b with the changes that Patch, Cut and Extra ask for.
func (s *Step) damaged(b []byte) []byte {
	if s.At < len(b) {
		copy(b[s.At:], s.Patch)
	}
	b = b[:max(len(b)-s.Cut, 0)]
	return append(b, s.Extra...)
}

// names() returns the path in the record as sent, which may differ from Path.
func (s *Step) names() string {
	if s.Patch == "" || !strings.HasPrefix(ops[s.Op].fields, "path") {
		return s.Path
	}
	d := jute.NewDecoder(s.encode(func(int) int64 { return 0 }))
	path, _ := d.String()
	return path
}

// code() returns the operation code that a step sends.
func (s *Step) code() jute.OpCode {
	if s.Op == "op" {
		return jute.OpCode(s.Code)
	}
	return ops[s.Op].code
}

// appendACL appends an ACL list given as text.
func appendACL(b wire.Body, text string) wire.Body {
	if text == "null" {
		return b.Null()
	}
	if text == "" {
		return b.Int(0)
	}
	entries := strings.Split(text, ",")
	b = b.Int(int32(len(entries)))
	for _, e := range entries {
		perms, rest, _ := strings.Cut(e, ":")
		scheme, id, hasID := strings.Cut(rest, ":")
		n, err := strconv.Atoi(perms)
		if err != nil {
			panic(fmt.Sprintf("oracle: ACL entry %q", e))
		}
		b = b.Int(int32(n)).Str(scheme)
		if hasID {
			b = b.Str(id)
		} else {
			b = b.Null()
		}
	}
	return b
}

// sequential() reports whether a create asks for a sequence number.
func (s *Step) sequential() bool {
	return s.Flags == jute.FlagPersistentSequential || s.Flags == jute.FlagEphemeralSequential ||
		s.Flags == jute.FlagPersistentSequentialTTL
}

// changes() reports whether a successful step changes anything: a multi of checks does not.
func (s *Step) changes() bool {
	if s.Op == "multi" {
		return slices.ContainsFunc(s.Ops, func(o Step) bool { return o.Op != "check" })
	}
	return ops[s.Op].write
}
