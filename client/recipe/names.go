package recipe

import (
	"errors"
	"math"
	"strings"
)

// Contender is one node of a queue.
type Contender struct {
	Name  string
	Maker Maker
	Kind  Role
	Seq   int32
}

// marker is the text between a contender's id and its number.
type marker struct {
	layout Layout
	kind   Role
	text   string
}

// The markers of all layouts. The marker "lock-" also stands for "-lock-": without protection, Curator writes
// neither an id nor a dash before "lock-".
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
		// Programs split the name at dashes into host, type and number, so the host must contain no dash.
		return strings.NewReplacer("-", "_", "/", "_").Replace(host) + "~" + id.Hex() + m
	default:
		return "_c_" + id.UUID() + "-" + m
	}
}

// ParseSeq reads what %010d writes for an int32, and nothing else. For -1 that is "-000000001". So ParseSeq
// refuses "-0000000001", whose dash belongs to a marker such as "lock-".
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

// Numbered reports whether the name of a contender's node ends in a number that the server gave it. Then no
// other node gets the same path while the directory exists.
func Numbered(node string) bool {
	_, _, ok := ParseName(Base(node))
	return ok
}

// markerAtEnd returns the marker at the end of head. It tries only markers that fit the last character.
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
			return MakerSelf // version 8 shows it: Curator's ids have version 4
		case len(rest) == 36 && isUUID(rest):
			return MakerCurator
		case len(rest) == 32 && isHex(rest):
			return MakerGo // go-zookeeper's ids are random bits, without a version
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

// Names of children that make a directory a lock of another kind.
const (
	SimpleName  = "lock"   // the one node of the textbooks' lock: its creator holds the lock
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

// Likeness reads names that differ from the client's own name only in id and number. In a long queue nearly
// all names are like that, and reading them is the main cost of a turn.
type Likeness struct {
	own  Contender
	tail string // the text between id and number
}

const (
	idBegins = len("_c_")
	idEnds   = idBegins + 36
)

func LikenessOf(own Contender) *Likeness {
	if own.Maker != MakerSelf || len(own.Name) < idEnds+10 || own.Name[:idBegins] != "_c_" {
		return &Likeness{}
	}
	if seq, ok := ParseSeq(own.Name[len(own.Name)-10:]); !ok || seq != own.Seq {
		return &Likeness{} // the number has a sign: this Likeness reads no name
	}
	return &Likeness{own: own, tail: own.Name[idEnds : len(own.Name)-10]}
}

func (l *Likeness) Read(name string) (Contender, bool) {
	end := len(name) - 10
	if l.tail == "" || len(name) != len(l.own.Name) || name[idEnds:end] != l.tail || name[:idBegins] != "_c_" ||
		!isSelfUUID(name[idBegins:idEnds]) {
		return Contender{}, false
	}
	n := uint64(0)
	for _, digit := range []byte(name[end:]) {
		if digit -= '0'; digit > 9 {
			return Contender{}, false
		}
		n = n*10 + uint64(digit)
	}
	return Contender{Name: name, Maker: MakerSelf, Kind: l.own.Kind, Seq: int32(n)}, n <= math.MaxInt32
}

// cutSlot reads the number at the beginning of s and returns the rest. If s begins with no number, slot is 0
// and `rest` is s.
func cutSlot(s string) (slot int, rest string) {
	digits := 0
	for digits < len(s) && digits < 9 && s[digits] >= '0' && s[digits] <= '9' {
		slot = slot*10 + int(s[digits]-'0')
		digits++
	}
	if digits == 0 || s[0] == '0' {
		return 0, s
	}
	return slot, s[digits:]
}

// isSlot reports whether s is a dash and the number of a permit.
func isSlot(s string) bool {
	n, rest := cutSlot(s[1:])
	return s[0] == '-' && n > 0 && rest == ""
}

// The errors of names and queues. Package client has them under the same names.
var (
	// ErrMixedLayout says that the directory has contenders that cannot see each other.
	ErrMixedLayout = errors.New("client: contenders of incompatible layouts in one directory")
	// ErrSequenceExhausted says that the directory's numbers wrap soon, or have wrapped, while some contenders
	// cannot order such numbers. Wait until the directory is empty and remove it. Then the numbers start again
	// at 0.
	ErrSequenceExhausted = errors.New(
		"client: sequence numbers exhausted; let the directory drain and remove it")
	// ErrInvalid reports an argument or option that cannot be used.
	ErrInvalid = errors.New("client: invalid argument")
)
