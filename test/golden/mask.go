package golden

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

const bodyStart = 4 + jute.ReplyHeaderSize // length prefix and header

// The type asked is what the replay knows of a request when its reply comes.
type asked struct {
	op    jute.OpCode
	paths []string // path of the request, or of each operation of a multi
}

var opByName = map[string]jute.OpCode{
	"exists": jute.OpExists, "getData": jute.OpGetData, "setData": jute.OpSetData,
	"getACL": jute.OpGetACL, "setACL": jute.OpSetACL, "getChildren": jute.OpGetChildren,
	"getChildren2": jute.OpGetChildren2, "getEphemerals": jute.OpGetEphemerals,
	"whoAmI": jute.OpWhoAmI, "multi": jute.OpMulti, "multiRead": jute.OpMultiRead,
}

// normalize() sorts the lists of a reply whose order is not fixed, and sets to zero the fields of Stats that
// depend on earlier vectors. It changes `frame` itself, and returns the ranges that it set to zero, as pairs
// of offsets.
func normalize(frame []byte, q asked, maskBuiltin bool) (zeroed [][2]int) {
	if len(frame) < bodyStart || binary.BigEndian.Uint32(frame[16:]) != 0 {
		return nil
	}
	n := normalizer{frame: frame, mask: maskBuiltin}
	if q.op == jute.OpMulti || q.op == jute.OpMultiRead {
		n.multi(q.paths)
	} else {
		path := ""
		if len(q.paths) > 0 {
			path = q.paths[0]
		}
		n.record(q.op, bodyStart, path)
	}
	return n.zeroed
}

type normalizer struct {
	frame  []byte
	mask   bool
	zeroed [][2]int
}

// record() normalizes one response record that begins at the offset `off`, and returns its end.
func (n *normalizer) record(op jute.OpCode, off int, path string) int {
	d := jute.NewDecoder(n.frame[off:])
	switch op {
	case jute.OpExists, jute.OpSetData, jute.OpSetACL:
		return n.stat(off, path)
	case jute.OpGetData:
		d.Buffer()
		return n.stat(off+d.Offset(), path)
	case jute.OpGetACL:
		d.ACL()
		return n.stat(off+d.Offset(), path)
	case jute.OpGetChildren, jute.OpGetChildren2, jute.OpGetEphemerals:
		names, _ := d.Strings()
		if d.Err() != nil {
			return len(n.frame)
		}
		slices.Sort(names)
		copy(n.frame[off:], jute.AppendStrings(nil, names))
		off += d.Offset()
		if op == jute.OpGetChildren2 {
			return n.stat(off, path)
		}
		return off
	case jute.OpWhoAmI:
		pairs := make([]string, max(d.Count(8), 0))
		for i := range pairs {
			begin := d.Offset()
			d.String()
			d.String()
			pairs[i] = string(n.frame[off+begin : off+d.Offset()])
		}
		if d.Err() == nil {
			slices.Sort(pairs)
			copy(n.frame[off+4:], strings.Join(pairs, ""))
		}
	}
	return len(n.frame)
}

// multi() normalizes each result of a multi or multiRead.
func (n *normalizer) multi(paths []string) {
	off := bodyStart
	for _, path := range paths {
		d := jute.NewDecoder(n.frame[off:])
		h := d.MultiHeader()
		if d.Err() != nil || h.Done {
			return
		}
		off += d.Offset()
		switch h.Type {
		case jute.OpError:
			off += 4
		case jute.OpCreate:
			d.String()
			off += d.Offset() - 9
		case jute.OpCreate2:
			d.String()
			off += d.Offset() - 9 + jute.StatSize
		case jute.OpGetData, jute.OpGetChildren, jute.OpSetData:
			off = n.record(h.Type, off, path)
		}
		if off > len(n.frame) {
			return
		}
	}
}

// stat() zeroes the fields of a Stat that earlier vectors change, if `path` is a node that all vectors share.
func (n *normalizer) stat(off int, path string) int {
	builtin := path == "" || path == "/" || path == "/zookeeper" || strings.HasPrefix(path, "/zookeeper/")
	if n.mask && builtin && off+jute.StatSize <= len(n.frame) {
		// mzxid; mtime, version, cversion; numChildren, pzxid
		for _, r := range [][2]int{{8, 16}, {24, 40}, {56, 68}} {
			clear(n.frame[off+r[0] : off+r[1]])
			n.zeroed = append(n.zeroed, [2]int{off + r[0], off + r[1]})
		}
	}
	if path == "/zookeeper/config" && off+jute.StatSize <= len(n.frame) {
		clear(n.frame[off+52 : off+56]) // dataLength, which depends on the lengths of the members' addresses
	}
	return off + jute.StatSize
}

// symbols are the values that the replay of one vector has met, by symbol.
type symbols map[string][]byte

// define() stores the value of a new symbol. It returns an error if the symbol already has another value, or
// if the value contradicts the value of another symbol.
func (y symbols) define(r Range, val []byte) error {
	if old, ok := y[r.Sym]; ok {
		if !slices.Equal(old, val) {
			return fmt.Errorf("%s was %x and is now %x", r.Sym, old, val)
		}
		return nil
	}
	kind, number := splitSym(r.Sym)
	for sym, old := range y {
		k, m := splitSym(sym)
		if k != kind {
			continue
		}
		a, b := old, val // a must come before b
		if m > number {
			a, b = val, old
		}
		switch {
		case kind == "zxid" && binary.BigEndian.Uint64(a) >= binary.BigEndian.Uint64(b),
			kind == "time" && binary.BigEndian.Uint64(a) > binary.BigEndian.Uint64(b):
			return fmt.Errorf("%s is %x and %s is %x: wrong order", r.Sym, val, sym, old)
		case kind != "time" && slices.Equal(a, b):
			return fmt.Errorf("%s and %s are both %x", r.Sym, sym, val)
		}
	}
	y[r.Sym] = slices.Clone(val)
	return nil
}

func splitSym(sym string) (kind string, number int) {
	kind, num, _ := strings.Cut(sym, "#")
	fmt.Sscan(num, &number)
	return kind, number
}

// substitute() returns the bytes that a step sends, with the values that this server has given for the
// symbols.
func (y symbols) substitute(s *Step) ([]byte, error) {
	b := s.bytes()
	for _, r := range s.Volatile {
		val, ok := y[r.Sym]
		if !ok {
			return nil, fmt.Errorf("%s is sent before it is known", r.Sym)
		}
		copy(b[r.Off:r.Off+r.Len], val)
	}
	return b, nil
}

// match() compares a frame with the recorded step. `seen` is the highest zxid so far on the connection;
// match() raises it.
func (y symbols) match(s *Step, q asked, got []byte, maskBuiltin bool, seen *int64) error {
	want := s.bytes()
	raw := slices.Clone(got)
	if q.op == jute.OpGetData && slices.Equal(q.paths, []string{"/zookeeper/config"}) {
		got = sameMembers(got, want)
	}
	zeroed := normalize(want, q, maskBuiltin)
	normalize(got, q, maskBuiltin)
	if len(got) != len(want) {
		return fmt.Errorf("frame of %d bytes, want %d\n got %s\nwant %s", len(got), len(want), shown(raw),
			shown(want))
	}
	isEvent := len(want) >= bodyStart && int32(binary.BigEndian.Uint32(want[4:])) == jute.XidEvent
	if isEvent {
		zxid := int64(binary.BigEndian.Uint64(got[8:]))
		if zxid != -1 && zxid < *seen {
			return fmt.Errorf("event of zxid %x after zxid %x was seen", zxid, *seen)
		}
		copy(got[8:16], want[8:16])
	}
	highest := *seen
	for _, r := range s.Volatile {
		if covered(r, zeroed) {
			continue
		}
		val := got[r.Off : r.Off+r.Len]
		switch r.Rule {
		case "eq":
			if err := y.define(r, val); err != nil {
				return fmt.Errorf("at offset %d: %w\n got %s\nwant %s", r.Off, err, shown(raw), shown(want))
			}
		case "ge":
			if z := int64(binary.BigEndian.Uint64(val)); z < *seen {
				return fmt.Errorf("header zxid %x after zxid %x was seen", z, *seen)
			}
		default:
			return fmt.Errorf("unknown rule %q", r.Rule)
		}
		if r.Kind == "zxid" {
			highest = max(highest, int64(binary.BigEndian.Uint64(val)))
		}
		copy(want[r.Off:], val)
	}
	*seen = highest
	if !slices.Equal(got, want) {
		return fmt.Errorf("frame differs\n got %s\nwant %s", shown(got), shown(want))
	}
	return nil
}

func covered(r Range, zeroed [][2]int) bool {
	for _, z := range zeroed {
		if r.Off >= z[0] && r.Off+r.Len <= z[1] {
			return true
		}
	}
	return false
}

func shown(b []byte) string {
	if len(b) > 600 {
		return fmt.Sprintf("%x… (%d bytes)", b[:600], len(b))
	}
	return hex.EncodeToString(b)
}
