package recipe

import "strings"

// Description holds all facts in a node's name, for names of any program. [ParseName] reads less, because
// clients read long queues at every turn.
type Description struct {
	Contender
	Layout Layout
	Numbed bool // the name ends in a number
	Word   bool // LayoutPlain: a word of the name says that it is a lock
	Hold   bool // LayoutPolicy: a hold node
	ID     ID   // LayoutPolicy: id of the attempt
}

// Describe reads a name. It never fails: an unknown name counts as a name without a number.
func Describe(s string) Description {
	if IsPolicyNode(s) {
		n, _ := ParsePolicyNode(s)
		d := Description{Layout: LayoutPolicy, Numbed: !n.Kind.Hold(), Hold: n.Kind.Hold(), ID: n.ID}
		d.Contender = Contender{Name: s, Kind: RoleWrite, Seq: n.Seq, Maker: MakerSelf}
		if n.Kind == QueueRead || n.Kind == HoldRead {
			d.Kind = RoleRead
		}
		return d
	}
	if c, l, ok := ParseName(s); ok && separate(c, l) {
		return Description{Contender: c, Layout: l, Numbed: true}
	}
	head, seq, ok := cutSeq(s)
	if _, id := ParseHex(s); id || !ok { // an id may end in digits
		return describeLone(s)
	}
	d := Description{Contender: Contender{Name: s, Seq: seq}, Layout: LayoutPlain, Numbed: true}
	if id, found := strings.CutPrefix(head, "x-"); found && isSession(strings.TrimSuffix(id, "-")) {
		d.Layout, d.Maker = LayoutZooKeeper, MakerZooKeeper
		return d
	}
	d.Kind, d.Word = PlainRole(head)
	return d
}

// separate() reports whether the marker of a name in Curator's layout is a word of its own. The marker
// "lock-" is one in "a-lock-", but not in "block-".
func separate(c Contender, l Layout) bool {
	if l != LayoutCurator || c.Kind.Family() == FamilyReadWrite || c.Maker != MakerUnknown {
		return true
	}
	text, _ := MarkerOf(l, c.Kind)
	at := strings.LastIndex(c.Name, text)
	return at <= 0 || c.Name[at-1] == '-'
}

// describeLone reads a name without a number. kazoo gives such names to the members of its
// semaphores and parties.
func describeLone(s string) Description {
	d := Description{Contender: Contender{Name: s}, Layout: LayoutLone}
	if id, ok := strings.CutSuffix(s, "__party__"); ok {
		if _, ok = ParseHex(id); ok {
			d.Layout, d.Kind, d.Maker = LayoutKazoo, RoleMember, MakerKazoo
			return d
		}
	}
	if _, ok := ParseHex(s); ok {
		d.Layout, d.Kind, d.Maker = LayoutKazoo, RoleLease, MakerOf(s)
	}
	return d
}

// lockWords are parts of names that only locks and elections have.
var lockWords = []string{"lock", "mutex", "latch", "leader", "master", "elect", "candidate", "semaphore"}

// PlainRole returns the role that head, the text before the number, shows in a name of an unknown library.
// The result `word` says whether the text shows that the node belongs to a lock. Tutorials use names such as
// lock0000000017, and ZooKeeper's manual uses guid-lock-, read-, write- and n_.
func PlainRole(head string) (r Role, word bool) {
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

// IsContender reports whether recipes give such a name to contenders: the name ends in a number, or it is the
// name of a hold under a policy.
func IsContender(name string) bool {
	d := Describe(name)
	return d.Numbed || d.Hold
}

// MayContend reports whether a node with this name may be a contender. A name without a number counts only if
// it has a form that kazoo uses, or is the name of the textbooks' lock.
func MayContend(name string) bool { return name == SimpleName || Describe(name).Layout != LayoutLone }

// Number returns the number that a contender's name ends in.
func Number(name string) (seq int32, ok bool) {
	d := Describe(name)
	return d.Seq, d.Numbed
}

// cutSeq cuts the number off a sequential name: ten characters, or eleven for a number below zero. A dash
// before ten digits is a minus sign only if another separator precedes it. The dash in "lock-0000000001" is
// no sign.
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

// isSession reports whether s is a session's id as ZooKeeper's recipes write it: hex in C, decimal in Java.
func isSession(s string) bool {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "-"), "0x")
	return s != "" && len(s) <= 20 && isHex(s)
}
