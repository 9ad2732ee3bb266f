package recipe

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Layout is the form of contenders' names in a lock's directory. It determines which other programs can share
// the lock.
type Layout uint8

const (
	// LayoutCurator is shared with Apache Curator and with go-zookeeper's Lock.
	LayoutCurator Layout = iota
	// LayoutKazoo is shared with kazoo, the Python client.
	LayoutKazoo
	// LayoutHost is shared with programs whose nodes are host-R-0000000001 and
	// host-W-0000000002.
	LayoutHost
	// LayoutPolicy is for read-write locks WithPolicy; no other program uses it.
	LayoutPolicy
	// LayoutLatch is for elections shared with Curator's LeaderLatch.
	LayoutLatch

	// This package recognises the layouts below, but package client makes no locks in them. LayoutZooKeeper
	// is the layout of ZooKeeper's own recipes: x-SESSION-0000000001.
	LayoutZooKeeper
	// LayoutPlain is any other name that ends in a number.
	LayoutPlain
	// LayoutLone is a name without a number: one node is the lock.
	LayoutLone
)

// LayoutNames are the layouts as text. The layouts of package client's locks come first.
var LayoutNames = [...]string{"curator", "kazoo", "host", "rw1", "latch", "x", "plain", "lone"}

// String returns "curator", "kazoo", "host", "rw1", "latch", "x", "plain" or "lone".
func (l Layout) String() string {
	if int(l) < len(LayoutNames) {
		return LayoutNames[l]
	}
	return "layout " + strconv.Itoa(int(l))
}

// MarshalText writes the text that String returns.
func (l Layout) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the text that String returns.
func (l *Layout) UnmarshalText(b []byte) error {
	return unmarshalName(LayoutNames[:], "layout", b, (*uint8)(l))
}

// unmarshalName stores the index of a name in names.
func unmarshalName(names []string, what string, name []byte, into *uint8) error {
	i := slices.Index(names, string(name))
	if i < 0 {
		return fmt.Errorf("%w: %s %.30q", ErrInvalid, what, name)
	}
	*into = uint8(i)
	return nil
}

// ParseLayout reads the name of a layout in which package client makes locks.
func ParseLayout(s string) (l Layout, err error) {
	err = unmarshalName(LayoutNames[:LayoutZooKeeper], "layout", []byte(s), (*uint8)(&l))
	return l, err
}

// Role is the part that a contender plays in its lock.
type Role uint8

// The roles.
const (
	RoleLock   Role = iota // exclusive
	RoleWrite              // exclusive, in a read-write lock
	RoleRead               // shared
	RoleLease              // a permit of a semaphore
	RoleLatch              // Curator's LeaderLatch; exclusive
	RoleMember             // kazoo's party, which has no turns
)

// Exclusive reports whether a contender in the role holds the lock alone.
func (k Role) Exclusive() bool { return k != RoleRead && k != RoleLease && k != RoleMember }

// ofRW reports whether the role is one of a read-write lock.
func (k Role) ofRW() bool { return k == RoleRead || k == RoleWrite }

// Mode returns the right that the role asks for.
func (k Role) Mode() Mode {
	switch k {
	case RoleRead:
		return Shared
	case RoleLease:
		return Permit
	case RoleMember:
		return Participant
	}
	return Exclusive
}

// Maker is the program that made a node, if the node's name shows it.
type Maker uint8

// The makers.
const (
	MakerUnknown Maker = iota
	MakerSelf          // package client
	MakerCurator
	MakerGo        // go-zookeeper's Lock
	MakerKazoo     // kazoo
	MakerZooKeeper // ZooKeeper's own recipes
)

var makerNames = [...]string{"unknown", "zlock", "curator", "go-zookeeper", "kazoo", "zookeeper"}

// String returns "zlock", "curator", "go-zookeeper", "kazoo", "zookeeper" or "unknown".
func (m Maker) String() string { return makerNames[m] }

// MarshalText writes the text that String returns.
func (m Maker) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the text that String returns.
func (m *Maker) UnmarshalText(b []byte) error {
	return unmarshalName(makerNames[:], "maker", b, (*uint8)(m))
}

// Contender is one node of a queue.
type Contender struct {
	Name  string
	Maker Maker
	Kind  Role
	guest bool // a kazoo lock in Curator's layout
	Seq   int32
}

// marker is the text between a contender's id and its number.
type marker struct {
	layout Layout
	kind   Role
	text   string
}

// The markers of all layouts. "lock-" also covers "-lock-": Curator without protection writes neither an id
// nor a dash before it.
var markers = []marker{
	{LayoutCurator, RoleRead, "__READ__"},
	{LayoutCurator, RoleWrite, "__WRIT__"},
	{LayoutCurator, RoleLock, "lock-"},
	{LayoutCurator, RoleLease, "lease-"},
	{LayoutCurator, RoleLatch, "latch-"},
	{LayoutKazoo, RoleRead, "__rlock__"},
	{LayoutKazoo, RoleLock, "__lock__"},
	{LayoutHost, RoleRead, "-R-"},
	{LayoutHost, RoleWrite, "-W-"},
}

// MarkerOf returns a layout's marker. In layouts that name writers like exclusive locks, RoleWrite
// and RoleLock are the same.
func MarkerOf(l Layout, k Role) (string, bool) {
	switch {
	case l == LayoutKazoo && k == RoleWrite:
		k = RoleLock
	case l == LayoutHost && k == RoleLock:
		k = RoleWrite
	}
	for _, m := range markers {
		if m.layout == l && m.kind == k {
			return m.text, true
		}
	}
	return "", false
}

// NodeName returns the name of a new contender, without its number.
func NodeName(l Layout, k Role, id ID, host string) string {
	m, _ := MarkerOf(l, k)
	switch l {
	case LayoutKazoo:
		return id.Hex() + m
	case LayoutHost:
		// A reader that splits at dashes must find host, type and number.
		return strings.NewReplacer("-", "_", "/", "_").Replace(host) + "~" + id.Hex() + m
	default:
		return "_c_" + id.UUID() + "-" + m
	}
}

// ParseSeq reads what %010d writes for an int32, and nothing else. Taking the
// last ten digits instead would turn the dash of "lock-" into a minus sign.
func ParseSeq(s string) (int32, bool) {
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

// ParseName reads a node's name, and reports whether it ends in a marker and a number. It reads only the end,
// because clients read long queues at every turn.
func ParseName(name string) (c Contender, l Layout, ok bool) {
	for _, digits := range [...]int{10, 11} {
		if len(name) < digits {
			break
		}
		head := name[:len(name)-digits]
		m := markerAtEnd(head)
		if m == nil {
			continue
		}
		if seq, isSeq := ParseSeq(name[len(head):]); isSeq {
			return Contender{Name: name, Kind: m.kind, Seq: seq, Maker: MakerOf(head[:len(head)-len(m.text)])},
				m.layout, true
		}
	}
	return Contender{}, 0, false
}

// Numbered reports whether the server gave a contender's node the number in its name: while the directory
// exists, no other node gets the same path.
func Numbered(node string) bool {
	_, _, ok := ParseName(Base(node))
	return ok
}

// markerAtEnd returns the marker that head ends in. It tries only markers that fit the last
// character.
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

// MakerOf returns the maker of a node, from the text before its marker.
func MakerOf(head string) Maker {
	if rest, ok := strings.CutPrefix(head, "_c_"); ok {
		rest = strings.TrimSuffix(rest, "-")
		switch {
		case len(rest) >= 36 && isSelfUUID(rest) && (len(rest) == 36 || isSlot(rest[36:])):
			return MakerSelf // isSelfUUID ignores the other digits
		case len(rest) == 36 && isUUID(rest):
			return MakerCurator
		case len(rest) == 32 && isHex(rest):
			return MakerGo // an id of random bits may look like any version
		}
		return MakerUnknown
	}
	made := MakerKazoo
	if i := strings.LastIndexByte(head, '~'); i >= 0 {
		head, made = head[i+1:], MakerUnknown
	}
	if len(head) != 32 || !isHex(head) {
		return MakerUnknown
	}
	if v := head[16]; head[12] == '8' && (v == '8' || v == '9' || v == 'a' || v == 'b') {
		return MakerSelf
	}
	return made
}

// isSelfUUID reports whether s, of 36 bytes or more, has the dashes, version 8 and its variant.
func isSelfUUID(s string) bool {
	v := s[19]
	return s[14] == '8' && (v == '8' || v == '9' || v == 'a' || v == 'b') && s[8] == '-' && s[13] == '-' &&
		s[18] == '-' && s[23] == '-'
}

// Before is the order of numbers. It compares their difference with 0, so it stays right when the numbers
// wrap.
func Before(a, b int32) bool { return a-b < 0 }

// Compare is the order of a queue. After a downgrade two numbers are equal, because the read node takes the
// number of its write node. The write node comes first: while it exists, it excludes all others.
func Compare(a, b Contender) int {
	switch {
	case a.Seq != b.Seq:
		if Before(a.Seq, b.Seq) {
			return -1
		}
		return 1
	case a.Kind.Exclusive() != b.Kind.Exclusive():
		if a.Kind.Exclusive() {
			return -1
		}
		return 1
	}
	return strings.Compare(a.Name, b.Name)
}

// IsPolicyNode reports whether a name belongs to a node of a lock with a policy.
func IsPolicyNode(name string) bool {
	if len(name) < 2 || name[1] != '-' { // nearly all names
		return false
	}
	_, ok := ParsePolicyNode(name)
	return ok
}

// maxForeignSeq is the last number for which clients that compare text agree with this package's order, less
// a million for nodes that are being created.
const maxForeignSeq = math.MaxInt32 - 1_000_000

// The errors of names and queues. Package client has them under the same names.
var (
	// ErrMixedLayout says that the directory has contenders that cannot see each other.
	ErrMixedLayout = errors.New("client: contenders of incompatible layouts in one directory")
	// ErrSequenceExhausted says that the directory's numbers wrap soon, or have wrapped, while some
	// contenders cannot order them. Wait until the directory is empty and remove it: then the numbers start
	// again at 0.
	ErrSequenceExhausted = errors.New(
		"client: sequence numbers exhausted; let the directory drain and remove it")
	// ErrInvalid reports an argument or option that cannot be used.
	ErrInvalid = errors.New("client: invalid argument")
)

// Names of children that make a directory a lock of another kind.
const (
	SimpleName  = "lock"   // the one node of the textbooks' lock: its creator holds
	PermitsName = "leases" // directory of a semaphore's permits
	QueueName   = "locks"  // directory of a semaphore's queue
)

// Join appends a name to a path.
func Join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// Base returns what follows the last slash of a path.
func Base(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

// Parent returns what precedes the last slash of a path.
func Parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return "/"
}

// ID identifies one attempt: a UUID of version 8 whose free bits are the 64 bits of the session and 58 random
// bits. It shows that package client made the node, and for which session. No two attempts have the same id,
// so a late request can never hit a newer node.
type ID [16]byte

// Hex returns the form without dashes.
func (id ID) Hex() string { return hex.EncodeToString(id[:]) }

// UUID returns the form with dashes.
func (id ID) UUID() string {
	h := id.Hex()
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// isHex reports whether s has only lower-case hex digits.
func isHex(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// isUUID reports whether s, of 36 bytes, has the form with dashes.
func isUUID(s string) bool {
	return s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' &&
		isHex(s[:8]) && isHex(s[9:13]) && isHex(s[14:18]) && isHex(s[19:23]) && isHex(s[24:])
}

// ParseHex reads 32 lower-case hex digits.
func ParseHex(s string) (id ID, ok bool) {
	if len(s) != 32 || !isHex(s) {
		return ID{}, false
	}
	_, _ = hex.Decode(id[:], []byte(s)) // checked above
	return id, true
}

// ParseUUID reads the form with dashes.
func ParseUUID(s string) (ID, bool) {
	if len(s) != 36 || !isUUID(s) {
		return ID{}, false
	}
	return ParseHex(s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:])
}

// NewID makes the identity of an attempt of session sid from random bits.
func NewID(sid int64, random uint64) ID {
	hi, lo := uint64(sid), random&(1<<58-1)
	var id ID
	// 48 bits | version 8 | 12 bits | variant 10 | 4 bits of the session, 58 random
	binary.BigEndian.PutUint64(id[:8], hi>>16<<16|8<<12|hi>>4&0xfff)
	binary.BigEndian.PutUint64(id[8:], 2<<62|(hi&0xf)<<58|lo)
	return id
}
