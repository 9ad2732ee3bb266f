package acl

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"
	"strings"
)

// addrRange is a range of IPv4 addresses. Two ranges have no address in common, or one contains the other.
type addrRange struct {
	first, last uint32
	perms       int32 // includes the permissions of the ranges around it
	outer       int   // index of the range around this range; -1: no range is around it
}

// nest() sorts the ranges and links each range to the range around it.
func (a *Set) nest() {
	slices.SortFunc(a.ranges, func(x, y addrRange) int {
		return cmp.Or(cmp.Compare(x.first, y.first), cmp.Compare(y.last, x.last))
	})
	list := a.ranges[:0]
	for _, r := range a.ranges {
		r.outer = len(list) - 1
		for r.outer >= 0 && list[r.outer].last < r.first {
			r.outer = list[r.outer].outer
		}
		if r.outer >= 0 {
			o := &list[r.outer]
			r.perms |= o.perms
			if o.first == r.first && o.last == r.last {
				o.perms = r.perms
				continue
			}
		}
		list = append(list, r)
	}
	a.ranges = list
}

// address() returns the permissions of the client at an address. As in ZooKeeper, only IPv4 addresses can
// match; an IPv4 address mapped into IPv6 counts as IPv4.
func (a *Set) address(s string) int32 {
	if len(a.ranges) == 0 {
		return 0
	}
	addr, err := netip.ParseAddr(s)
	if addr = addr.Unmap(); err != nil || !addr.Is4() {
		return 0
	}
	n := addressNumber(addr)
	at := sort.Search(len(a.ranges), func(i int) bool { return a.ranges[i].first > n }) - 1
	for at >= 0 && a.ranges[at].last < n {
		at = a.ranges[at].outer
	}
	if at < 0 {
		return 0
	}
	return a.ranges[at].perms
}

// addressNumber returns an IPv4 address as a number.
func addressNumber(a netip.Addr) uint32 {
	b := a.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// parseRange reads "a.b.c.d" or "a.b.c.d/bits".
func parseRange(s string) (netip.Prefix, bool) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		return netip.PrefixFrom(a, 32), err == nil && a.Is4()
	}
	p, err := netip.ParsePrefix(s)
	return p, err == nil && p.Addr().Is4()
}
