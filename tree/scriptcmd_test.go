package tree_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/watches"
)

// scene is the state of a script. Its changes have zxids from 1. Their time is 1000 times the zxid, unless
// the command `time` sets another.
type scene struct {
	*testing.T
	tree *tree.Tree
	zxid int64
	tree.Change
	out bytes.Buffer
}

func newScene(t *testing.T) *scene {
	return &scene{T: t, tree: tree.New(), Change: tree.Change{Session: 1}}
}

// args holds the key=value words of a command, and its other words by number.
type args map[string]string

func parse(list []string) args {
	a := args{}
	for i, w := range list {
		if k, v, ok := strings.Cut(w, "="); ok && i > 0 && !strings.HasPrefix(w, "/") {
			a[k] = v
		} else {
			a[strconv.Itoa(i)] = w
		}
	}
	return a
}

func (a args) num(key string, otherwise int64) int64 {
	if v, err := strconv.ParseInt(a[key], 0, 64); err == nil {
		return v
	}
	return otherwise
}

func (a args) list(key string) []string {
	if v, ok := a[key]; ok {
		return strings.Split(v, ",")
	}
	return nil
}

var scriptOps = map[string]jute.OpCode{
	"create": jute.OpCreate, "create2": jute.OpCreate2, "container": jute.OpCreateContainer,
	"ttl":    jute.OpCreateTTL,
	"delete": jute.OpDelete, "set": jute.OpSetData, "setacl": jute.OpSetACL, "check": jute.OpCheck,
	"get": jute.OpGetData, "ls": jute.OpGetChildren, "multi": jute.OpMulti,
}

// body() encodes the request of a command.
func (a args) body(b []byte, op jute.OpCode) []byte {
	str := func(b []byte, s string) []byte {
		if s == "null" {
			return jute.AppendInt(b, -1)
		}
		return jute.AppendString(b, s)
	}
	b = str(b, a["1"])
	switch op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpSetData:
		b = str(b, a["data"])
	case jute.OpGetData, jute.OpGetChildren:
		return jute.AppendBool(b, true)
	}
	if op == jute.OpDelete || op == jute.OpCheck || op == jute.OpSetData {
		return jute.AppendInt(b, int32(a.num("v", -1)))
	}
	acl, ok := a["acl"]
	if !ok {
		acl = "31:world:anyone"
	}
	switch acl {
	case "null":
		b = jute.AppendInt(b, -1)
	case "":
		b = jute.AppendInt(b, 0)
	default:
		entries := strings.Split(acl, ";")
		b = jute.AppendInt(b, int32(len(entries)))
		for _, e := range entries {
			f := append(strings.SplitN(e, ":", 3), "", "")
			perms, _ := strconv.Atoi(f[0])
			b = str(str(jute.AppendInt(b, int32(perms)), f[1]), f[2])
		}
	}
	if op == jute.OpSetACL {
		return jute.AppendInt(b, int32(a.num("v", -1)))
	}
	flags := map[jute.OpCode]int64{jute.OpCreateContainer: 4, jute.OpCreateTTL: 5}[op]
	b = jute.AppendInt(b, int32(a.num("flags", flags)))
	if op == jute.OpCreateTTL {
		b = jute.AppendLong(b, a.num("ttl", 1000))
	}
	return b
}

// run() runs one command.
func (s *scene) run(list []string, more [][]string) {
	a := parse(list)
	p := a["1"]
	switch list[0] {
	case "session":
		s.Session = a.num("1", 0)
	case "as":
		s.IDs = nil
		for _, w := range list[1:] {
			scheme, id, _ := strings.Cut(w, ":")
			if scheme == "digest" {
				s.IDs = append(s.IDs, acl.DigestID(id))
			} else {
				s.IDs = append(s.IDs, jute.ID{Scheme: scheme, ID: id})
			}
		}
	case "time":
		s.Time = a.num("1", 0)
	case "quota":
		s.NoQuota = p == "off"
	case "nottl":
		s.NoTTL = p == "on"
	case "onelayout":
		s.OneLayout = p == "on"
	case "limits":
		s.tree.SetLimits(int(a.num("children", 0)), int(a.num("listing", 0)), int(a.num("ephemerals", 0)),
			int(a.num("multiread", 0)))
	case "counter":
		fmt.Fprintln(&s.out, s.tree.SetCounter(p, int32(a.num("2", 0))))
	case "versions":
		s.tree.SetVersions(p, int32(a.num("2", 0)), int32(a.num("3", 0)))
	case "reload":
		s.reload()
	case "raw":
		body := must.Get(hex.DecodeString(strings.Join(list[2:], "")))(s)
		s.apply(jute.OpCode(a.num("1", 0)), body)
	case "close":
		s.change(func(c *tree.Change) { s.tree.CloseSession(c, a.num("1", 0)) })
	case "config":
		s.change(func(c *tree.Change) { s.tree.SetConfig(c, []byte(a["text"])) })
	case "reap":
		s.change(func(c *tree.Change) {
			ok := s.tree.Reap(c, p, a.num("now", s.Time))
			fmt.Fprintln(&s.out, ok)
			if !ok {
				s.zxid--
			}
		})
	case "multiread":
		b, _, code := s.tree.AppendMultiRead(nil, s.IDs, multiBody(more))
		s.print(jute.OpMulti, b, code)
	case "multi":
		s.apply(jute.OpMulti, multiBody(more))
	case "catchup":
		s.catchUp(a)
	default:
		if op, ok := scriptOps[list[0]]; ok && op != jute.OpGetData && op != jute.OpGetChildren {
			s.apply(op, a.body(nil, op))
		} else {
			s.read(list[0], a)
		}
	}
}

func multiBody(ops [][]string) (b []byte) {
	for _, o := range ops {
		op := scriptOps[o[0]]
		b = parse(o).body(jute.AppendMultiHeader(b, op, false, -1), op)
	}
	return jute.AppendMultiHeader(b, jute.OpError, true, -1)
}

// change() makes the next change and prints its events.
func (s *scene) change(f func(*tree.Change)) {
	s.zxid++
	c := s.Change
	c.Zxid = s.zxid
	if c.Time == 0 {
		c.Time = 1000 * c.Zxid
	}
	f(&c)
	for _, e := range c.Events {
		fmt.Fprintf(&s.out, "  %v %s%s\n", e.Type, pathNote(e.Path), aclNote(e.ACL.List()))
	}
}

// pathNote prints a path, in quotes if it is unusual.
func pathNote(path string) string {
	if q := strconv.QuoteToASCII(path); q != `"`+path+`"` || path == "" || strings.Contains(path, " ") {
		return q
	}
	return path
}

// aclNote prints an ACL, except the usual one.
func aclNote(acl []jute.ACL) string {
	if slices.Equal(acl, jute.WorldAnyone) {
		return ""
	}
	var list []string
	for _, a := range acl {
		list = append(list, fmt.Sprintf("%d:%s:%s", a.Perms, a.Scheme, a.ID.ID))
	}
	return " acl=" + strings.Join(list, ";")
}

func (s *scene) apply(op jute.OpCode, body []byte) {
	s.change(func(c *tree.Change) {
		out, code, changed := s.tree.Apply(c, op, body, nil)
		s.print(op, out, code)
		if !changed {
			s.zxid--
		}
	})
}

func (s *scene) read(name string, a args) {
	p := a["1"]
	var b []byte
	var code jute.ErrCode
	op := jute.OpExists
	switch name {
	case "exists":
		b, code = s.tree.AppendExists(nil, s.IDs, p)
	case "get":
		op = jute.OpGetData
		b, code = s.tree.AppendData(nil, s.IDs, p)
	case "getacl":
		op = jute.OpGetACL
		b, code = s.tree.AppendACL(nil, s.IDs, p)
	case "ls":
		op = jute.OpGetChildren
		b, code = s.tree.AppendChildren(nil, s.IDs, p)
	case "ls2":
		op = jute.OpGetChildren2
		b, code = s.tree.AppendChildrenStat(nil, s.IDs, p)
	case "number":
		op = jute.OpGetAllChildrenNumber
		b, code = s.tree.AppendChildrenNumber(nil, s.IDs, p)
	case "ephemerals":
		op = jute.OpGetEphemerals
		b = s.tree.AppendEphemerals(nil, s.Session, a["prefix"])
	case "reapable":
		list, _ := s.tree.Reapable(a.num("now", s.Time), 0, int(a.num("max", 100)), nil)
		fmt.Fprintf(&s.out, "%q\n", list)
		return
	case "totals":
		fmt.Fprintf(&s.out, "%d nodes, %d bytes, %d ephemerals\n", s.tree.Count(), s.tree.Bytes(),
			s.tree.EphemeralCount())
		return
	case "kinds":
		s.tree.Walk(func(path string, i tree.Info) bool {
			rest, under := strings.CutPrefix(path, strings.TrimSuffix(p, "/"))
			if !under || rest != "" && rest[0] != '/' {
				return true
			}
			fmt.Fprintf(&s.out, "%s %s owner=%d ttl=%d\n", path, []string{"plain", "ephemeral", "container",
				"TTL"}[i.Kind], i.EphemeralOwner, i.TTL)
			return true
		})
		return
	default:
		s.Fatalf("unknown command %q", name)
	}
	s.print(op, b, code)
}

func (s *scene) catchUp(a args) {
	r := &jute.SetWatches{
		RelativeZxid: a.num("z", 0), Data: a.list("data"), Exist: a.list("exist"), Child: a.list("child"),
		Persistent: a.list("persistent"), Recursive: a.list("recursive"),
	}
	s.tree.CatchUp(s.IDs, r,
		func(k watches.Kind, p string) {
			fmt.Fprintln(&s.out, "arm", []string{"data", "child", "persistent", "recursive"}[k], pathNote(p))
		},
		func(e jute.EventType, p string) { fmt.Fprintln(&s.out, e, pathNote(p)) })
}

// reload() replaces the tree by what its snapshot holds.
func (s *scene) reload() {
	snap, load := s.tree.StartSnapshot(), tree.NewLoader()
	for done := false; !done; {
		var b []byte
		b, done = snap.Append(nil, 3)
		must.OK(s, load.Add(b))
	}
	snap.Close()
	loaded := must.Get(load.Finish())(s)
	s.tree = loaded
}

// print() prints a reply.
func (s *scene) print(op jute.OpCode, b []byte, code jute.ErrCode) {
	if code != jute.OK {
		fmt.Fprintln(&s.out, code)
		must.That(s, len(b) <= 0, "%v with %v: %q", op, code, b)
		return
	}
	d := jute.NewDecoder(b)
	if op == jute.OpMulti {
		for h := d.MultiHeader(); !h.Done; h = d.MultiHeader() {
			fmt.Fprintf(&s.out, "- %d", h.Type)
			s.record(&d, h.Type)
		}
		s.out.WriteString("- end\n")
	} else {
		s.out.WriteString("ok")
		s.record(&d, op)
	}
	must.OK(s, d.Err(), "%v", op)
	must.That(s, len(d.Rest()) <= 0,
		"%v: malformed reply %q: want len(d.Rest()) <= 0", op, b)
}

func (s *scene) record(d *jute.Decoder, op jute.OpCode) {
	data := func() string {
		if b := d.Buffer(); b != nil {
			return fmt.Sprintf(" %q", b)
		}
		return " null"
	}
	w := &s.out
	switch op {
	case jute.OpError:
		fmt.Fprint(w, " ", d.Int())
	case jute.OpCreate:
		fmt.Fprint(w, data())
	case jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpGetData:
		fmt.Fprint(w, data(), statNote(d.Stat()))
	case jute.OpSetData, jute.OpSetACL, jute.OpExists:
		fmt.Fprint(w, statNote(d.Stat()))
	case jute.OpGetACL:
		acl, _ := d.ACL()
		fmt.Fprint(w, aclNote(acl), statNote(d.Stat()))
	case jute.OpGetAllChildrenNumber:
		fmt.Fprint(w, " ", d.Int())
	case jute.OpGetChildren, jute.OpGetChildren2, jute.OpGetEphemerals:
		names, _ := d.Strings()
		slices.Sort(names)
		fmt.Fprintf(w, " %q", names)
		if op == jute.OpGetChildren2 {
			fmt.Fprint(w, statNote(d.Stat()))
		}
	}
	fmt.Fprintln(w)
}

// statNote prints the fields that are not 0.
func statNote(s jute.Stat) string {
	var b strings.Builder
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"czxid", s.Czxid}, {"mzxid", s.Mzxid}, {"pzxid", s.Pzxid}, {"ctime", s.Ctime}, {"mtime", s.Mtime},
		{"version", int64(s.Version)}, {"cversion", int64(s.Cversion)}, {"aversion", int64(s.Aversion)},
		{"owner", s.EphemeralOwner}, {"len", int64(s.DataLength)}, {"children", int64(s.NumChildren)},
	} {
		if f.value != 0 {
			fmt.Fprintf(&b, " %s=%d", f.name, f.value)
		}
	}
	return b.String()
}
