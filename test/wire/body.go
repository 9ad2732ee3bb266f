package wire

import "github.com/zlockd/zlockd/jute"

// Body is a request record under construction. Its methods append one field each and return the longer
// body, so that a record reads as the list of its fields: Body{}.Str("/a").Bool(true).
type Body []byte

// Str appends a string.
func (b Body) Str(s string) Body { return jute.AppendString(b, s) }

// Null appends a null string, buffer or vector.
func (b Body) Null() Body { return jute.AppendInt(b, -1) }

// Buf appends a buffer; nil is null.
func (b Body) Buf(v []byte) Body { return jute.AppendBuffer(b, v) }

// Int appends a 32-bit integer.
func (b Body) Int(v int32) Body { return jute.AppendInt(b, v) }

// Long appends a 64-bit integer.
func (b Body) Long(v int64) Body { return jute.AppendLong(b, v) }

// Bool appends a bool.
func (b Body) Bool(v bool) Body { return jute.AppendBool(b, v) }

// ACL appends an ACL list; nil is null.
func (b Body) ACL(acl []jute.ACL) Body {
	if acl == nil {
		return b.Null()
	}
	return jute.AppendACL(b, acl)
}

// Strs appends a vector of strings.
func (b Body) Strs(list ...string) Body { return jute.AppendStrings(b, list) }

// Create returns the record of create, create2 and createContainer.
func Create(path string, data []byte, acl []jute.ACL, flags int32) Body {
	return Body{}.Str(path).Buf(data).ACL(acl).Int(flags)
}

// CreateTTL returns the record of createTTL.
func CreateTTL(path string, data []byte, acl []jute.ACL, flags int32, ttl int64) Body {
	return Create(path, data, acl, flags).Long(ttl)
}

// PathVersion returns the record of delete and check.
func PathVersion(path string, version int32) Body { return Body{}.Str(path).Int(version) }

// SetData returns the record of setData.
func SetData(path string, data []byte, version int32) Body {
	return Body{}.Str(path).Buf(data).Int(version)
}

// SetACL returns the record of setACL.
func SetACL(path string, acl []jute.ACL, version int32) Body {
	return Body{}.Str(path).ACL(acl).Int(version)
}

// PathWatch returns the record of exists, getData, getChildren and getChildren2.
func PathWatch(path string, watch bool) Body { return Body{}.Str(path).Bool(watch) }

// PathInt returns the record of addWatch (a mode), removeWatches and checkWatches (a watcher type).
func PathInt(path string, n int32) Body { return Body{}.Str(path).Int(n) }

// Path returns the record of getACL, sync, getEphemerals and getAllChildrenNumber.
func Path(path string) Body { return Body{}.Str(path) }

// Auth returns the record of auth.
func Auth(scheme, credential string) Body {
	return Body{}.Int(0).Str(scheme).Buf([]byte(credential))
}

// SetWatches returns the record of setWatches.
func SetWatches(zxid int64, data, exist, child []string) Body {
	return Body{}.Long(zxid).Strs(data...).Strs(exist...).Strs(child...)
}

// SetWatches2 returns the record of setWatches2.
func SetWatches2(zxid int64, data, exist, child, persistent, recursive []string) Body {
	return SetWatches(zxid, data, exist, child).Strs(persistent...).Strs(recursive...)
}

// Op is one operation inside a multi or multiRead.
type Op struct {
	Type jute.OpCode
	Body Body
}

// Multi returns the record of multi and multiRead.
func Multi(ops ...Op) Body {
	var b Body
	for _, op := range ops {
		b = append(jute.AppendMultiHeader(b, op.Type, false, -1), op.Body...)
	}
	return jute.AppendMultiHeader(b, jute.OpError, true, -1)
}
