package recipe

import "strings"

// described holds all facts in a node's name, for names of any program. [ParseName] reads less, because long
// queues call it at every turn.
type described struct {
	Contender
	layout Layout
	numbed bool // the name ends in a number
	word   bool // LayoutPlain: a word of the name says that it is a lock
	hold   bool // LayoutPolicy: a hold node
	id     ID   // LayoutPolicy: id of the attempt
}

// describe reads a name. It never fails: an unknown name counts as a name without a number.
func describe(s string) described {
	if IsPolicyNode(s) {
		n, _ := ParsePolicyNode(s)
		d := described{layout: LayoutPolicy, numbed: !n.Kind.Hold(), hold: n.Kind.Hold(), id: n.ID}
		d.Contender = Contender{Name: s, Kind: RoleWrite, Seq: n.Seq, Maker: MakerSelf}
		if n.Kind == QueueRead || n.Kind == HoldRead {
			d.Kind = RoleRead
		}
		return d
	}
	if c, l, ok := ParseName(s); ok && separate(c, l) {
		return described{Contender: c, layout: l, numbed: true}
	}
	head, seq, ok := cutSeq(s)
	if _, id := ParseHex(s); id || !ok { // an id may end in digits
		return describeLone(s)
	}
	d := described{Contender: Contender{Name: s, Seq: seq}, layout: LayoutPlain, numbed: true}
	if id, found := strings.CutPrefix(head, "x-"); found && isSession(strings.TrimSuffix(id, "-")) {
		d.layout, d.Maker = LayoutZooKeeper, MakerZooKeeper
		return d
	}
	d.Kind, d.word = plainRole(head)
	return d
}

// separate reports whether the marker of a name in Curator's layout is a word of its own: "block-" is not
// "lock-".
func separate(c Contender, l Layout) bool {
	if l != LayoutCurator || c.Kind.ofRW() || c.Maker != MakerUnknown {
		return true
	}
	text, _ := MarkerOf(l, c.Kind)
	at := strings.LastIndex(c.Name, text)
	return at <= 0 || c.Name[at-1] == '-'
}

// describeLone reads a name without a number. kazoo gives such names to the members of its
// semaphores and parties.
func describeLone(s string) described {
	d := described{Contender: Contender{Name: s}, layout: LayoutLone}
	if id, ok := strings.CutSuffix(s, "__party__"); ok {
		if _, ok = ParseHex(id); ok {
			d.layout, d.Kind, d.Maker = LayoutKazoo, RoleMember, MakerKazoo
			return d
		}
	}
	if _, ok := ParseHex(s); ok {
		d.layout, d.Kind, d.Maker = LayoutKazoo, RoleLease, MakerOf(s)
	}
	return d
}

// lockWords are parts of names that only locks and elections have.
var lockWords = []string{"lock", "mutex", "latch", "leader", "master", "elect", "candidate", "semaphore"}

// plainRole returns the role that the text before the number shows, in a name of an unknown library. word
// reports whether the text says that the node is a lock's. The tutorials have lock0000000017, the manual
// guid-lock-, read-, write- and n_.
func plainRole(head string) (r Role, word bool) {
	last := strings.ToLower(strings.TrimRight(head, "-_.:~#"))
	if i := strings.LastIndexAny(last, "-_.:~#"); i >= 0 {
		last = last[i+1:]
	}
	switch last {
	case "read", "reader", "rlock", "readlock", "shared", "r":
		return RoleRead, true
	case "write", "writer", "wlock", "writelock", "w":
		return RoleWrite, true
	case "n", "lk":
		return RoleLock, true
	}
	lower := strings.ToLower(head)
	for _, w := range lockWords {
		if strings.Contains(lower, w) {
			return RoleLock, true
		}
	}
	return RoleLock, false
}

// IsContender reports whether recipes give such a name to contenders: the name ends in a number, or is that
// of a hold under a policy.
func IsContender(name string) bool {
	d := describe(name)
	return d.numbed || d.hold
}

// MayContend reports whether a name may be a contender's. Most names without a number may be any node's; the
// exceptions are kazoo's names and the textbooks' lock.
func MayContend(name string) bool { return name == SimpleName || describe(name).layout != LayoutLone }

// Number returns the number that a contender's name ends in.
func Number(name string) (seq int32, ok bool) {
	d := describe(name)
	return d.Seq, d.numbed
}

// cutSeq cuts the number off a sequential name: ten characters, or eleven for a number below zero. A minus
// before ten digits is a sign only after another separator, because the dash of "lock-" is not a sign.
func cutSeq(s string) (head string, seq int32, ok bool) {
	if n := len(s); n > 12 && s[n-11] == '-' && (s[n-12] == '-' || s[n-12] == '_') {
		if seq, ok = ParseSeq(s[n-11:]); ok {
			return s[:n-11], seq, true
		}
	}
	if len(s) < 10 {
		return "", 0, false
	}
	seq, ok = ParseSeq(s[len(s)-10:])
	return s[:len(s)-10], seq, ok
}

// isSession reports whether s is a session's id in the form of a recipe: hex in C, decimal in Java.
func isSession(s string) bool {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "-"), "0x")
	return s != "" && len(s) <= 20 && isHex(s)
}
