package audit

import (
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/zlockd/zlockd/jute"
)

// Event is one line of the log. Empty fields are omitted.
type Event struct {
	Session   int64
	User, IP  string
	IDs       []jute.ID // the user's identities, in place of User
	Operation string
	Path      string // path of the node
	whole     int    // length of the path, if Path has only its beginning
	Type      string // type of a created node
	ACL       string
	Request   string // the body of an operator's request, or the reason why a client's request was refused
	Result    string // empty: success
}

// appendLost appends a line that says how many lines about an address were lost.
func (l *Log) appendLost(b []byte, addr string, lost int64) []byte {
	return appendEvent(l.appendTime(b), &Event{User: l.owner, IP: addr, Operation: "linesLost",
		Request: strconv.FormatInt(lost, 10) + " lines", Result: failure})
}

// appendTime appends the time in the form of ZooKeeper's log. The caller holds the lock of the sink.
func (l *Log) appendTime(b []byte) []byte {
	now := l.now()
	if s := now.Unix(); s != l.second || l.stamp == nil {
		l.second, l.stamp = s, now.UTC().AppendFormat(l.stamp[:0], "2006-01-02 15:04:05,")
	}
	b = append(b, l.stamp...)
	ms := now.Nanosecond() / 1e6
	b = append(b, byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
	return append(b, " INFO audit:"...)
}

// appendEvent writes the fields in the order of ZooKeeper's log.
func appendEvent(b []byte, e *Event) []byte {
	before := byte(' ')
	name := func(name string) {
		b = append(b, before)
		b = append(append(b, name...), '=')
		before = '\t'
	}
	if e.Session != 0 {
		name("session")
		b = strconv.AppendUint(append(b, "0x"...), uint64(e.Session), 16)
	}
	name("user")
	b = appendClean(appendUsers(b, e.IDs), e.User)
	for _, f := range [...]struct {
		name, value string
		whole       int
	}{{"ip", e.IP, 0}, {"operation", e.Operation, 0}, {"znode", e.Path, e.whole}, {"znode_type", e.Type, 0},
		{"acl", e.ACL, 0}, {"request", e.Request, 0}, {"result", cmp.Or(e.Result, "success"), 0}} {
		if f.value != "" {
			name(f.name)
			b = appendPart(b, f.value, max(f.whole, len(f.value)))
		}
	}
	return append(b, '\n')
}

// maxValue is how many bytes of a value the log shows. For a longer value it shows the beginning and the
// length.
const maxValue = 1 << 10

// appendClean appends a value. It leaves out control characters: they could end the field or the line, or
// control the reader's terminal.
func appendClean(b []byte, s string) []byte { return appendPart(b, s, len(s)) }

// appendPart is appendClean for a value of n bytes of which s may be only the beginning.
func appendPart(b []byte, s string, n int) []byte {
	if n > maxValue {
		cut := maxValue
		for cut > maxValue-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
			cut--
		}
		return append(strconv.AppendInt(append(appendClean(b, s[:cut]), "...("...), int64(n), 10), " bytes)"...)
	}
	bad := func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 }
	if utf8.ValidString(s) && strings.IndexFunc(s, bad) < 0 {
		return append(b, s...)
	}
	for _, r := range s {
		if !bad(r) {
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// appendUsers appends the names that a client has proved, and its address.
func appendUsers(b []byte, ids []jute.ID) []byte {
	begin := len(b)
	for _, id := range ids {
		user := id.ID
		if id.Scheme == "digest" {
			user, _, _ = strings.Cut(user, ":")
		}
		if user == "" || id.Scheme == "super" { // the super user is also in the list as user:hash: name it once
			continue
		}
		if len(b) > begin {
			b = append(b, ',')
		}
		b = appendClean(b, user)
	}
	return b
}

// aclText returns an ACL in the form in which zkCli prints it.
func aclText(acl []jute.ACL) string {
	var b strings.Builder
	for _, a := range acl {
		b.WriteString(a.Scheme + ":" + a.ID.ID + ":")
		for i, perm := range []int32{jute.PermCreate, jute.PermDelete, jute.PermRead, jute.PermWrite,
			jute.PermAdmin} {
			if a.Perms&perm != 0 {
				b.WriteByte("cdrwa"[i])
			}
		}
	}
	return b.String()
}
