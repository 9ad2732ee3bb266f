package client

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Layout says how contenders are named in a lock's directory, and thus with
// which other programs the lock can be shared.
type Layout uint8

const (
	// LayoutCurator is shared with Apache Curator and with go-zookeeper's Lock.
	LayoutCurator Layout = iota
	// LayoutKazoo is shared with kazoo, the Python client.
	LayoutKazoo
	// LayoutHost is shared with programs whose nodes are host-R-0000000001 and
	// host-W-0000000002.
	LayoutHost
	// LayoutPolicy is that of read-write locks WithPolicy: only this package
	// knows it.
	LayoutPolicy
)

var layoutNames = [...]string{"curator", "kazoo", "host", "rw1"}

// String returns "curator", "kazoo", "host" or "rw1".
func (l Layout) String() string {
	if int(l) < len(layoutNames) {
		return layoutNames[l]
	}
	return "layout " + strconv.Itoa(int(l))
}

// ParseLayout reads what [Layout.String] writes.
func ParseLayout(s string) (Layout, error) {
	if i := slices.Index(layoutNames[:], s); i >= 0 {
		return Layout(i), nil
	}
	return 0, fmt.Errorf("%w: layout %q", ErrInvalid, s)
}

// nodeKind is what a contender wants.
type nodeKind uint8

const (
	kindLock  nodeKind = iota // exclusive
	kindWrite                 // exclusive, of a read-write lock
	kindRead                  // shared
	kindLease                 // of a semaphore
	kindLatch                 // of Curator's LeaderLatch; exclusive
)

func (k nodeKind) exclusive() bool { return k != kindRead && k != kindLease }

// maker is the program that made a node, as far as its name tells.
type maker uint8

const (
	makerUnknown maker = iota
	makerSelf          // this package
	makerCurator
	makerGo    // go-zookeeper's Lock
	makerKazoo // kazoo
)

// contender is one node of a queue.
type contender struct {
	name  string
	maker maker
	kind  nodeKind
	guest bool // a kazoo lock in Curator's layout
	seq   int32
}

// marker is the text between a contender's id and its number.
type marker struct {
	layout Layout
	kind   nodeKind
	text   string
}

// markers of all layouts. "lock-" stands for "-lock-" as well: Curator without
// protection writes no id and no dash before it.
var markers = []marker{
	{LayoutCurator, kindRead, "__READ__"},
	{LayoutCurator, kindWrite, "__WRIT__"},
	{LayoutCurator, kindLock, "lock-"},
	{LayoutCurator, kindLease, "lease-"},
	{LayoutCurator, kindLatch, "latch-"},
	{LayoutKazoo, kindRead, "__rlock__"},
	{LayoutKazoo, kindLock, "__lock__"},
	{LayoutHost, kindRead, "-R-"},
	{LayoutHost, kindWrite, "-W-"},
}

// markerOf returns a layout's marker. In the layouts whose writers are named like
// exclusive locks, kindWrite is kindLock.
func markerOf(l Layout, k nodeKind) (string, bool) {
	switch {
	case l == LayoutKazoo && k == kindWrite:
		k = kindLock
	case l == LayoutHost && k == kindLock:
		k = kindWrite
	}
	for _, m := range markers {
		if m.layout == l && m.kind == k {
			return m.text, true
		}
	}
	return "", false
}

// nodeName returns the name of a new contender, without its number.
func nodeName(l Layout, k nodeKind, id nodeID, host string) string {
	m, _ := markerOf(l, k)
	switch l {
	case LayoutKazoo:
		return id.hex() + m
	case LayoutHost:
		// A reader that splits at dashes must find host, type and number.
		return strings.NewReplacer("-", "_", "/", "_").Replace(host) + "~" + id.hex() + m
	default:
		return "_c_" + id.uuid() + "-" + m
	}
}

// parseSeq reads what %010d writes for an int32, and nothing else. Taking the
// last ten digits instead would turn the dash of "lock-" into a minus sign.
func parseSeq(s string) (int32, bool) {
	digits := s
	if s != "" && s[0] == '-' {
		digits = s[1:]
	}
	if len(s) != 10 && (len(s) != 11 || len(digits) == len(s)) {
		return 0, false
	}
	var n int64
	for i := 0; i < len(digits); i++ {
		d := digits[i] - '0'
		if d > 9 {
			return 0, false
		}
		n = n*10 + int64(d)
	}
	if len(digits) < len(s) {
		n = -n
	}
	if n < math.MinInt32 || n > math.MaxInt32 || len(s) == 11 && n > -1e9 {
		return 0, false
	}
	return int32(n), true
}

// parseName reads a node's name, which ends in a marker and a number, and says
// whether it does. Long queues are read at every turn, so it looks at the end only.
func parseName(name string) (c contender, l Layout, ok bool) {
	for _, digits := range [...]int{10, 11} {
		if len(name) < digits {
			break
		}
		head := name[:len(name)-digits]
		m := markerAtEnd(head)
		if m == nil {
			continue
		}
		if seq, isSeq := parseSeq(name[len(head):]); isSeq {
			return contender{name: name, kind: m.kind, seq: seq, maker: makerOf(head[:len(head)-len(m.text)])}, m.layout, true
		}
	}
	return contender{}, 0, false
}

// markerAtEnd returns the marker that head ends in. It tries only those that can be.
func markerAtEnd(head string) *marker {
	n := len(head)
	if n < 3 {
		return nil
	}
	dash := head[n-1] == '-'
	if !dash && head[n-1] != '_' {
		return nil
	}
	for i := range markers {
		if m := &markers[i]; dash == (m.text[len(m.text)-1] == '-') && strings.HasSuffix(head, m.text) {
			return m
		}
	}
	return nil
}

// makerOf finds out who made a node, by what stands before its marker.
func makerOf(head string) maker {
	if rest, ok := strings.CutPrefix(head, "_c_"); ok {
		rest = strings.TrimSuffix(rest, "-")
		switch {
		case len(rest) == 36 && isSelfUUID(rest):
			return makerSelf // the other digits are not looked at
		case len(rest) == 36 && isUUID(rest):
			return makerCurator
		case len(rest) == 32 && isHex(rest):
			return makerGo // an id of random bits may look like any version
		}
		return makerUnknown
	}
	made := makerKazoo
	if i := strings.LastIndexByte(head, '~'); i >= 0 {
		head, made = head[i+1:], makerUnknown
	}
	if len(head) != 32 || !isHex(head) {
		return makerUnknown
	}
	if v := head[16]; head[12] == '8' && (v == '8' || v == '9' || v == 'a' || v == 'b') {
		return makerSelf
	}
	return made
}

// isSelfUUID reports whether s, of 36 bytes, has the dashes, version 8 and its variant.
func isSelfUUID(s string) bool {
	v := s[19]
	return s[14] == '8' && (v == '8' || v == '9' || v == 'a' || v == 'b') && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-'
}

// before is the order of numbers. A difference is taken, so that it holds while
// they wrap.
func before(a, b int32) bool { return a-b < 0 }

// compareContenders is the order of a queue. Equal numbers come from a downgrade,
// whose read node takes its write node's: the write node is before it, because
// until it is gone it excludes everybody.
func compareContenders(a, b contender) int {
	switch {
	case a.seq != b.seq:
		if before(a.seq, b.seq) {
			return -1
		}
		return 1
	case a.kind.exclusive() != b.kind.exclusive():
		if a.kind.exclusive() {
			return -1
		}
		return 1
	}
	return strings.Compare(a.name, b.name)
}

// queueOf returns the contenders among a directory's children, in order, and the
// names of children that are none. With rw, reads and writes contend, not only
// exclusive locks.
func queueOf(l Layout, names []string, rw bool) (list []contender, foreign []string, err error) {
	q := queue{layout: l, rw: rw}
	var seen census
	list = make([]contender, 0, len(names))
	for _, name := range names {
		c, ok, e := q.member(name)
		switch {
		case e != nil:
			err = e
		case ok:
			list = append(list, c)
			seen.add(c)
		default:
			foreign = append(foreign, name)
		}
	}
	if err != nil {
		return nil, foreign, err
	}
	slices.SortFunc(list, compareContenders)
	return list, foreign, seen.check(q)
}

// isPolicyNode reports whether a name is that of a lock with a policy.
func isPolicyNode(name string) bool {
	if len(name) < 2 || name[1] != '-' { // nearly all
		return false
	}
	_, ok := parsePolicy(name)
	return ok
}

// maxForeignSeq is the last number at which clients that compare text agree with
// us, less a million for those on their way.
const maxForeignSeq = math.MaxInt32 - 1_000_000

// checkPath refuses what cannot be the path of a lock.
func checkPath(p string) error {
	why := ""
	switch {
	case !strings.HasPrefix(p, "/"):
		why = "is not absolute"
	case p == "/":
		why = "is the root"
	case path.Clean(p) != p:
		why = "is not canonical"
	case strings.ContainsRune(p, 0):
		why = "has a zero byte"
	default:
		return nil
	}
	return fmt.Errorf("%w: path %q %s", ErrInvalid, p, why)
}

// join appends a name to a path.
func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// baseName is what follows the last slash.
func baseName(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

// parentOf is what precedes the last slash.
func parentOf(p string) string {
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return "/"
}
