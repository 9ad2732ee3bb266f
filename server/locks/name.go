package locks

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// Layout is how contenders are named, and thus who can see whom.
type Layout string

// The layouts. Contenders of two of them in one directory exclude each other
// only within their own.
const (
	Curator Layout = "curator" // Curator, go-zookeeper, package client
	Kazoo   Layout = "kazoo"
	Host    Layout = "host"  // host-R-0000000001, host-W-0000000002
	Recipe  Layout = "x"     // ZooKeeper's own recipe: x-SESSION-0000000001
	Policy  Layout = "rw1"   // read-write locks with a policy, of package client
	Plain   Layout = "plain" // any other sequential name
	Lone    Layout = "lone"  // one node without a number
)

// Mode is what a contender wants.
type Mode string

// The modes.
const (
	Exclusive   Mode = "exclusive"
	Shared      Mode = "shared"
	Permit      Mode = "permit"      // of a semaphore
	Participant Mode = "participant" // nothing: it only says that it is there
)

// name is what a node's name tells.
type name struct {
	layout Layout
	mode   Mode
	rw     bool // a read-write lock's
	latch  bool
	seq    int32
	numbed bool // seq is there
	word   bool // Plain: a word in it says that it is a lock
	hold   bool // Policy: a hold node
	id     [16]byte
	hasID  bool
	maker  string
}

// Makers, as far as names tell.
const (
	byUs      = "zlock"
	byCurator = "curator"
	byGo      = "go-zookeeper"
	byKazoo   = "kazoo"
	byC       = "zookeeper"
	byUnknown = "unknown"
)

var markers = []struct {
	text   string
	layout Layout
	mode   Mode
	rw     bool
}{
	{"__READ__", Curator, Shared, true},
	{"__WRIT__", Curator, Exclusive, true},
	{"latch-", Curator, Exclusive, false},
	{"lease-", Curator, Permit, false},
	{"lock-", Curator, Exclusive, false},
	{"__rlock__", Kazoo, Shared, true},
	{"__lock__", Kazoo, Exclusive, false},
	{"-R-", Host, Shared, true},
	{"-W-", Host, Exclusive, true},
}

// parseName tells what is known of an ephemeral node by its name. It never
// fails: a name that tells nothing is a Lone one.
func parseName(s string) name {
	if n, ok := parsePolicy(s); ok {
		return n
	}
	head, seq, ok := cutSeq(s)
	if !ok {
		return parseLone(s)
	}
	for i := range markers {
		m := &markers[i]
		if id, found := strings.CutSuffix(head, m.text); found && marked(m.layout, m.text, id) {
			n := name{layout: m.layout, mode: m.mode, rw: m.rw, latch: m.text == "latch-", seq: seq, numbed: true}
			n.identify(id)
			return n
		}
	}
	if id, found := strings.CutPrefix(head, "x-"); found && isSession(strings.TrimSuffix(id, "-")) {
		return name{layout: Recipe, mode: Exclusive, seq: seq, numbed: true, maker: byC}
	}
	return parsePlain(head, seq)
}

// marked tells whether what stands before a marker may stand there. Curator
// without protection writes nothing, and "block-" is not "lock-".
func marked(l Layout, marker, id string) bool {
	if l != Curator || marker[0] == '_' {
		return true
	}
	return id == "" || id[len(id)-1] == '-'
}

// parseLone reads a name without a number: the members of kazoo's semaphores
// and parties have one.
func parseLone(s string) name {
	n := name{layout: Lone, mode: Exclusive, maker: byUnknown}
	if id, ok := strings.CutSuffix(s, "__party__"); ok {
		if n.id, n.hasID = parseHex(id); n.hasID {
			n.layout, n.mode, n.maker = Kazoo, Participant, byKazoo
			return n
		}
	}
	if n.id, n.hasID = parseHex(s); n.hasID {
		n.layout, n.mode, n.maker = Kazoo, Permit, byKazoo
		n.ours()
	}
	return n
}

// lockWords are parts of names that nothing but a lock or an election has.
var lockWords = []string{"lock", "mutex", "latch", "leader", "master", "elect", "candidate", "semaphore"}

// parsePlain reads a sequential name that belongs to no known library: the
// tutorials have lock0000000017, the manual guid-lock-, read-, write- and n_.
func parsePlain(head string, seq int32) name {
	n := name{layout: Plain, mode: Exclusive, seq: seq, numbed: true, maker: byUnknown}
	word := strings.ToLower(strings.TrimRight(head, "-_.:~#"))
	if i := strings.LastIndexAny(word, "-_.:~#"); i >= 0 {
		word = word[i+1:]
	}
	switch word {
	case "read", "reader", "rlock", "readlock", "shared", "r":
		n.mode, n.rw, n.word = Shared, true, true
		return n
	case "write", "writer", "wlock", "writelock", "w":
		n.rw, n.word = true, true
		return n
	case "n", "lk":
		n.word = true
		return n
	}
	lower := strings.ToLower(head)
	for _, w := range lockWords {
		n.word = n.word || strings.Contains(lower, w)
	}
	return n
}

// parsePolicy reads the names of locks with a policy: q-UUID-R-NUMBER and
// h-UUID-W.
func parsePolicy(s string) (name, bool) {
	const head = 2 + 36 + 2 // "q-", the id, "-R"
	if len(s) < head || s[1] != '-' || s[38] != '-' || s[0] != 'q' && s[0] != 'h' || s[39] != 'R' && s[39] != 'W' {
		return name{}, false
	}
	id, ok := parseUUID(s[2:38])
	if !ok {
		return name{}, false
	}
	n := name{layout: Policy, mode: Exclusive, rw: true, id: id, hasID: true, maker: byUs, hold: s[0] == 'h'}
	if s[39] == 'R' {
		n.mode = Shared
	}
	if n.hold {
		return n, len(s) == head
	}
	if len(s) == head || s[head] != '-' {
		return name{}, false
	}
	n.seq, n.numbed = parseSeq(s[head+1:])
	return n, n.numbed
}

// identify finds out who made the node by what stands before the marker.
func (n *name) identify(head string) {
	n.maker = byUnknown
	if rest, ok := strings.CutPrefix(head, "_c_"); ok {
		rest = strings.TrimSuffix(rest, "-")
		if n.id, n.hasID = parseUUID(rest); n.hasID {
			n.maker = byCurator
		} else if n.id, n.hasID = parseHex(rest); n.hasID {
			n.maker = byGo
			return // an id of random bits may look like any version
		}
	} else if i := strings.LastIndexByte(head, '~'); i >= 0 {
		n.id, n.hasID = parseHex(head[i+1:])
	} else if n.id, n.hasID = parseHex(head); n.hasID {
		n.maker = byKazoo
	}
	n.ours()
}

// ours recognises the ids of package client: UUIDs of version 8.
func (n *name) ours() {
	if n.hasID && n.id[6]>>4 == 8 && n.id[8]>>6 == 2 {
		n.maker = byUs
	}
}

// cutSeq cuts the number off a sequential name: ten characters, or eleven once
// the counter has wrapped far. A minus before ten digits is a sign only behind
// another separator: "lock-" ends in a dash of its own.
func cutSeq(s string) (head string, seq int32, ok bool) {
	if n := len(s); n > 12 && s[n-11] == '-' && (s[n-12] == '-' || s[n-12] == '_') {
		if seq, ok = parseSeq(s[n-11:]); ok {
			return s[:n-11], seq, true
		}
	}
	if len(s) < 10 {
		return "", 0, false
	}
	seq, ok = parseSeq(s[len(s)-10:])
	return s[:len(s)-10], seq, ok
}

// parseSeq reads what %010d writes for an int32, and nothing else.
func parseSeq(s string) (int32, bool) {
	if len(s) != 10 && len(s) != 11 || s[0] == '+' {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || len(s) == 11 && n > -1e9 {
		return 0, false
	}
	return int32(n), true
}

// isSession tells whether s is a session's id as the recipes write it: hex in
// C, decimal in Java.
func isSession(s string) bool {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "-"), "0x")
	if s == "" || len(s) > 20 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// parseHex reads 32 lower-case hex digits.
func parseHex(s string) (id [16]byte, ok bool) {
	if len(s) != 32 {
		return id, false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return id, false
		}
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err == nil
}

// parseUUID reads the form with dashes.
func parseUUID(s string) ([16]byte, bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return [16]byte{}, false
	}
	return parseHex(s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:])
}

// before is the order of numbers. A difference is taken, so that it holds while
// they wrap.
func before(a, b int32) bool { return a-b < 0 }
