package offline

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

var ownOps = map[jute.OpCode]string{
	state.OpCreateSession: "createSession", state.OpAttach: "attach", state.OpExpire: "expire",
	state.OpOpenStream: "openStream", state.OpDigest: "digest", state.OpConfig: "members", state.OpReap: "reap",
	state.OpBarrier: "barrier", state.OpWords: "words", state.OpFound: "found", state.OpRefuse: "refuse",
	state.OpStage: "stage", state.OpPiece: "piece", state.OpRestore: "restore", state.OpUnstage: "unstage",
}

func opName(op jute.OpCode) string { return cmp.Or(ownOps[op], op.String()) }

// optionsText names the options under which a leader sealed an entry.
func optionsText(o byte) string {
	var names []string
	for _, x := range []struct {
		bit  byte
		name string
	}{{state.NoQuota, "no-quota"}, {state.NoTTL, "no-ttl"}, {state.Full, "full"}, {state.LowDisk, "low-disk"}} {
		if o&x.bit != 0 {
			names = append(names, x.name)
			o &^= x.bit
		}
	}
	if o != 0 {
		names = append(names, fmt.Sprintf("0x%x", o))
	}
	return strings.Join(names, ",")
}

// loggedText returns a request of zlockd's log in one line, without passwords.
func loggedText(x *state.Logged) string {
	from := "leader"
	if x.Origin != 0 {
		from = fmt.Sprintf("server %d stream %d request %d", x.Origin, x.Birth, x.Seq)
	}
	if x.Session != 0 {
		from += fmt.Sprintf(" session 0x%x generation %d", uint64(x.Session), x.Gen)
	}
	for _, id := range x.IDs {
		user, _, _ := strings.Cut(id.ID, ":")
		from += fmt.Sprintf(" as %s:%s", id.Scheme, user)
	}
	return from + ": " + opName(x.Op) + bodyText(x.Op, x.Body)
}

// bodyText returns the body of a request as text.
func bodyText(op jute.OpCode, body []byte) string {
	d := jute.NewDecoder(body)
	text := requestText(op, &d)
	if d.Err() != nil {
		return fmt.Sprintf(" (does not decode: %v) %x", d.Err(), body)
	}
	return text
}

func requestText(op jute.OpCode, d *jute.Decoder) string {
	switch op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
		r := d.CreateRequest(op)
		ttl := ""
		if op == jute.OpCreateTTL {
			ttl = fmt.Sprintf(" ttl %d", r.TTL)
		}
		return fmt.Sprintf(" %q data %s acl %s flags %d%s", r.Path, showData(r.Data), showACL(r.ACL), r.Flags, ttl)
	case jute.OpDelete, jute.OpCheck:
		r := d.PathVersion()
		return fmt.Sprintf(" %q version %d", r.Path, r.Version)
	case jute.OpSetData:
		r := d.SetDataRequest()
		return fmt.Sprintf(" %q data %s version %d", r.Path, showData(r.Data), r.Version)
	case jute.OpSetACL:
		r := d.SetACLRequest()
		return fmt.Sprintf(" %q acl %s version %d", r.Path, showACL(r.ACL), r.Version)
	case jute.OpSync:
		path, _ := d.String()
		return fmt.Sprintf(" %q", path)
	case jute.OpMulti:
		return multiText(d)
	case state.OpReap, state.OpConfig, state.OpWords, state.OpFound:
		return fmt.Sprintf(" %q", d.Rest())
	case state.OpDigest:
		return fmt.Sprintf(" of zxid 0x%x: %016x", d.Long(), uint64(d.Long()))
	case state.OpCreateSession, state.OpAttach:
		timeout := d.Int()
		for range jute.PasswordSize {
			d.Byte()
		}
		owner := d.Int()
		addr, _ := d.String()
		return fmt.Sprintf(" timeout %dms at server %d from %s", timeout, owner, addr)
	}
	return ""
}

// multiText lists the operations of a multi, each behind its header.
func multiText(d *jute.Decoder) string {
	var parts []string
	for d.Err() == nil {
		h := d.MultiHeader()
		if h.Done || d.Err() != nil {
			break
		}
		parts = append(parts, opName(h.Type)+requestText(h.Type, d))
	}
	return " [" + strings.Join(parts, "; ") + "]"
}

// opText returns a change in a ZooKeeper's log as text.
func opText(o *zkfiles.Op) string {
	text := opName(o.Type)
	if o.Path != "" {
		text += fmt.Sprintf(" %q", o.Path)
	}
	if o.Create() {
		text += fmt.Sprintf(" data %s acl %s parent's children ever created %d", showData(o.Data), showACL(o.ACL),
			o.Cversion)
		if o.Ephemeral {
			text += " ephemeral"
		}
		if o.TTL > 0 {
			text += fmt.Sprintf(" ttl %d", o.TTL)
		}
		return text
	}
	switch o.Type {
	case jute.OpSetData, jute.OpReconfig:
		return text + fmt.Sprintf(" data %s version %d", showData(o.Data), o.Version)
	case jute.OpSetACL:
		return text + fmt.Sprintf(" acl %s version %d", showACL(o.ACL), o.Version)
	case jute.OpCheck:
		return text + fmt.Sprintf(" version %d", o.Version)
	case jute.OpError:
		return text + fmt.Sprintf(" %d", o.Err)
	case zkfiles.OpCreateSession:
		return text + fmt.Sprintf(" timeout %dms", o.Timeout)
	case jute.OpCloseSession:
		return text + fmt.Sprintf(" %q", o.Paths)
	}
	return text
}
