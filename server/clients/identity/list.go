package identity

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/tree/acl"
)

// Bounds of a List, because the whole list travels with every write.
const (
	MaxIDs   = entries.MaxIDs
	MaxBytes = entries.MaxIDBytes // how many bytes all identities together may have
)

// SuperID is the identity that passes every check.
var SuperID = acl.Super[0]

// List holds a client's identities: first its address, then the identities that it has proved. Only the
// connection's goroutine changes the list. It replaces the slice and never changes its elements, because
// clients of one address share their first slice.
type List struct{ atomic.Pointer[[]jute.ID] }

// Unproved returns the identities of a client that has proved none: its address, and the super user if the
// server checks no access rights.
func Unproved(host string, skipACL bool) *[]jute.ID {
	ids := []jute.ID{{Scheme: "ip", ID: javaHost(host)}}
	if skipACL {
		ids = append(ids, SuperID)
	}
	return inOrder(ids)
}

// javaHost formats an address as Java does: IPv6 in eight groups.
func javaHost(host string) string {
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Is4() {
		return host
	}
	var b []byte
	for group := range slices.Chunk(ip.AsSlice(), 2) {
		b = strconv.AppendUint(append(b, ':'), uint64(binary.BigEndian.Uint16(group)), 16)
	}
	return string(b[1:])
}

// inOrder sorts identities as ZooKeeper's hash set does. Clients see the order in the answer to whoAmI, and
// in an ACL that the server makes of the scheme "auth".
func inOrder(ids []jute.ID) *[]jute.ID {
	buckets := jute.GrownTable(len(ids) + 1) // a HashSet grows one element earlier than GrownTable assumes
	jute.SortByBucket(ids, buckets, func(id jute.ID) int32 {
		return 37*(37*17+jute.JavaHash(id.Scheme)) + jute.JavaHash(id.ID)
	})
	return &ids
}

// Add adds a proved identity. If the identity is the super user's, Add also adds the super identity. Add
// returns false if the identity is empty, or if the client has too many identities.
func (l *List) Add(id jute.ID, super Super) bool {
	if id.ID == "" {
		return false
	}
	ids := slices.Clone(*l.Load())
	if !slices.Contains(ids, id) {
		ids = append(ids, id)
	}
	if super.Is(id) && !slices.Contains(ids, SuperID) {
		ids = append(ids, SuperID)
	}
	size := 0
	for i := range ids {
		size += len(ids[i].Scheme) + len(ids[i].ID)
	}
	if len(ids) > MaxIDs || size > MaxBytes {
		return false
	}
	l.Store(inOrder(ids))
	return true
}

// HasOneOf reports whether the client has an identity of one of the schemes. Without schemes it returns true.
func (l *List) HasOneOf(schemes []string) bool {
	return len(schemes) == 0 || slices.ContainsFunc(*l.Load(), func(id jute.ID) bool {
		return slices.Contains(schemes, id.Scheme)
	})
}

// AppendWhoAmI appends the identities without their secrets.
func (l *List) AppendWhoAmI(b []byte) []byte {
	ids := *l.Load()
	b = jute.AppendInt(b, int32(len(ids)))
	for _, id := range ids {
		user := id.ID
		if id.Scheme == Digest {
			user, _, _ = strings.Cut(user, ":")
		}
		b = jute.AppendString(b, id.Scheme)
		b = jute.AppendString(b, user)
	}
	return b
}
