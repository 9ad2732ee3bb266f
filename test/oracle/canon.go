package oracle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// The constant wrong marks a fault in the comparable form of a frame. With this mark a frame is wrong even if
// the other server's frame is equal.
const wrong = "‽"

// The list builtin has the nodes that every server has from the beginning. Of their counters, only the
// changes since the start of the run are compared.
var builtin = []string{"/", "/zookeeper", configPath, "/zookeeper/quota"}

// configPath is the node that lists the members of an ensemble.
const configPath = "/zookeeper/config"

// at() returns a name for a zxid: the number of its change. All zxids from before the run share one name.
func (s *side) at(zxid int64) string {
	if zxid == 0 {
		return "0"
	}
	if zxid <= s.commits[0] {
		return "old"
	}
	if i, ok := slices.BinarySearch(s.commits, zxid); ok {
		return "@" + strconv.Itoa(i)
	}
	return fmt.Sprintf("‽%x", zxid)
}

// covers() returns a name for the zxid in the header of a reply: the number of the last change that it
// covers.
func (s *side) covers(zxid int64) string {
	i, ok := slices.BinarySearch(s.commits, zxid)
	if !ok {
		i--
	}
	return "@" + strconv.Itoa(i)
}

// stat() returns the comparable form of a Stat of the node at `path`.
func (s *side) stat(path string, st jute.Stat) string {
	if path == "" {
		path = "/"
	}
	if base, ok := s.counters[path]; ok {
		st.Version -= base.Version
		st.Cversion -= base.Cversion
		st.Aversion -= base.Aversion
	}
	if s.members && path == configPath { // the servers have different data, written at different times
		st.DataLength, st.Mzxid, st.Mtime = 0, 0, 0
	}
	owner := "0"
	if st.EphemeralOwner != 0 {
		owner = s.ids[st.EphemeralOwner]
		if owner == "" {
			owner = fmt.Sprintf("‽%x", st.EphemeralOwner)
		}
	}
	return fmt.Sprintf("{c=%s m=%s p=%s%s%s v=%d cv=%d av=%d owner=%s len=%d kids=%d}",
		s.at(st.Czxid), s.at(st.Mzxid), s.at(st.Pzxid), s.time(st.Czxid, st.Ctime), s.time(st.Mzxid, st.Mtime),
		st.Version, st.Cversion, st.Aversion, owner, st.DataLength, st.NumChildren)
}

// time() checks that a zxid always comes with the same time, and that this time is close to now. It returns a
// complaint; if all is well, it returns "".
func (s *side) time(zxid, ms int64) string {
	if zxid <= s.commits[0] {
		return ""
	}
	if old, ok := s.times[zxid]; ok && old != ms {
		return fmt.Sprintf(" ‽time %d after %d", ms, old)
	}
	s.times[zxid] = ms
	if d := time.Since(time.UnixMilli(ms)); d.Abs() > time.Minute {
		return fmt.Sprintf(" ‽time %d is %v off", ms, d)
	}
	return ""
}

// canon is a frame in comparable form.
type canon struct {
	text string
	// `alt` is another form that a Known difference may accept.
	alt   string
	event *jute.EventType // type of the event; nil: the frame is not an event
	path  string          // path of the event
	zxid  int64           // zxid of the event
	code  jute.ErrCode    // code of the reply
	step  *Step           // the step that the reply answers
}

// canonical() returns the comparable form of g.
func (s *side) canonical(g got) canon {
	if g.end != nil {
		return canon{text: "connection ended: " + g.end.Error()}
	}
	f := g.frame
	if e := f.Event; e != nil {
		return canon{text: fmt.Sprintf("event %v %q state=%d", e.Type, e.Path, e.State), event: &e.Type,
			path: e.Path, zxid: f.Zxid}
	}
	if g.late {
		return canon{text: fmt.Sprintf("‽reply out of place: xid=%d code=%d", f.Xid, f.Code)}
	}
	c := canon{code: f.Code, step: g.step}
	var zxid string
	switch {
	case f.Zxid == -1, g.step.Op == "auth" && f.Zxid == 0, g.step.Op == "sasl" && f.Zxid == 0:
		zxid = strconv.FormatInt(f.Zxid, 10)
	default:
		zxid = s.covers(f.Zxid)
	}
	head := fmt.Sprintf("reply to %s: code=%d zxid=%s", g.step.Op, f.Code, zxid)
	d := jute.NewDecoder(f.Body)
	body, alt := s.body(g.step, f.Code, &d)
	if d.Err() != nil {
		body += " ‽malformed"
	}
	if n := len(d.Rest()); n > 0 {
		body += fmt.Sprintf(" +%d bytes", n)
	}
	c.text = head + body
	c.alt = head + alt
	return c
}

// body() returns the comparable form of a response record. `alt` is another form, for Known differences:
// without the Stat of a create2 inside a multi, or with the entries of an ACL in order.
func (s *side) body(st *Step, code jute.ErrCode, d *jute.Decoder) (text, alt string) {
	if code != jute.OK {
		return "", ""
	}
	path := st.names()
	switch st.Op {
	case "multi", "multiRead":
		return s.results(st, d)
	case "ping", "delete", "deleteContainer", "check", "auth", "closeSession", "op", "removeWatches",
		"checkWatches", "setWatches", "setWatches2":
	case "create":
		text = quoted(d)
	case "create2", "createContainer", "createTTL":
		text = quoted(d)
		text += s.stat(path, d.Stat())
	case "exists", "setData", "setACL":
		text = s.stat(path, d.Stat())
	case "getData":
		text = s.data(path, d) + s.stat(path, d.Stat())
	case "sasl":
		text = s.data("", d)
	case "getACL":
		acl, nullID := d.ACL()
		stat := s.stat(path, d.Stat())
		text = fmt.Sprintf(" acl=%q null=%v", acl, nullID) + stat
		slices.SortFunc(acl, func(a, b jute.ACL) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return text, fmt.Sprintf(" acl=%q null=%v", acl, nullID) + stat
	case "getChildren":
		text = names(d)
	case "getEphemerals": // the order must be the same, too
		list, _ := d.Strings()
		text = fmt.Sprintf(" %q", list)
	case "getChildren2":
		text = names(d) + s.stat(path, d.Stat())
	case "getAllChildren", "addWatch":
		text = fmt.Sprintf(" %d", d.Int())
	case "sync":
		text = quoted(d)
	case "whoAmI":
		list := make([]string, max(d.Count(8), 0))
		for i := range list {
			scheme, _ := d.String()
			id, _ := d.String()
			list[i] = scheme + ":" + id
		}
		text = fmt.Sprintf(" %q", list)
	}
	return text, text
}

func quoted(d *jute.Decoder) string {
	p, ok := d.String()
	if !ok {
		return " null"
	}
	return " " + strconv.Quote(p)
}

// data() returns the comparable form of a node's data.
func (s *side) data(path string, d *jute.Decoder) string {
	b := d.Buffer()
	if s.members && path == configPath {
		return " data=members"
	}
	if b == nil {
		return " data=null"
	}
	return " data=" + strconv.Quote(string(b))
}

func names(d *jute.Decoder) string {
	list, ok := d.Strings()
	if !ok {
		return " null"
	}
	slices.Sort(list)
	return fmt.Sprintf(" %q", list)
}

// results() returns the comparable form of the results of a multi. In `alt`, a create2 shows only its path.
func (s *side) results(st *Step, d *jute.Decoder) (text, alt string) {
	var t, a strings.Builder
	for i := 0; ; i++ {
		h := d.MultiHeader()
		if d.Err() != nil || h.Done {
			fmt.Fprintf(&t, " end %d %d", h.Type, h.Err)
			fmt.Fprintf(&a, " end %d %d", h.Type, h.Err)
			return t.String(), a.String()
		}
		path := ""
		if i < len(st.Ops) {
			path = st.Ops[i].Path
		}
		one := fmt.Sprintf(" [%v %d", h.Type, h.Err)
		other := ""
		switch h.Type {
		case jute.OpError:
			one += fmt.Sprintf(" %d", d.Int())
		case jute.OpCreate:
			one += quoted(d)
		case jute.OpCreate2:
			p := quoted(d)
			one += p + s.stat(path, d.Stat())
			if i < len(st.Ops) && st.Ops[i].Op == "create2" {
				other = fmt.Sprintf(" [%v %d%s]", jute.OpCreate, h.Err, p)
			}
		case jute.OpSetData:
			one += s.stat(path, d.Stat())
		case jute.OpGetData:
			one += s.data(path, d) + s.stat(path, d.Stat())
		case jute.OpGetChildren:
			one += names(d)
		}
		one += "]"
		if other == "" {
			other = one
		}
		t.WriteString(one)
		a.WriteString(other)
	}
}

// succeeded() reports whether a reply confirms a change, so that its header holds the zxid of that change.
func succeeded(st *Step, g got) bool {
	if g.end != nil || g.frame.Event != nil || g.late || g.frame.Code != jute.OK || !st.changes() {
		return false
	}
	if st.Op == "multi" {
		d := jute.NewDecoder(g.frame.Body)
		return d.MultiHeader().Type != jute.OpError
	}
	return true
}
