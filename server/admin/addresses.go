package admin

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// javaAddr prints an address as Java does: after a slash, and an IPv6 address in eight groups.
func javaAddr(addr string) string {
	return "/" + hostPort(addr)
}

// hostPort prints an address as ZooKeeper's JSON commands do.
func hostPort(addr string) string {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return addr
	}
	ip := ap.Addr().Unmap()
	if ip.Is4() {
		return netip.AddrPortFrom(ip, ap.Port()).String()
	}
	b := []byte{'['}
	a16 := ip.As16()
	for i := 0; i < 16; i += 2 {
		if i > 0 {
			b = append(b, ':')
		}
		b = strconv.AppendUint(b, uint64(a16[i])<<8|uint64(a16[i+1]), 16)
	}
	if zone := ip.Zone(); zone != "" {
		b = append(append(b, '%'), zone...)
	}
	b = append(b, "]:"...)
	return string(strconv.AppendUint(b, uint64(ap.Port()), 10))
}

// withoutPort returns the host of HOST or HOST:PORT, without brackets.
func withoutPort(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.Trim(host, "[]")
}

// portOf returns what follows the last colon of addr.
func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
