package admin

import (
	"math"
	"net/netip"
	"strconv"
	"strings"
)

// decimal prints f as Java prints a double rounded to four places: at least
// one decimal, at most four.
func decimal(f float64) string {
	s := short(f)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// short prints f with up to four decimals, without zeros at the end. A NaN or infinity prints as
// 0: a monitoring system must be able to parse every line.
func short(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "0"
	}
	if math.Abs(f) < 1e11 { // larger numbers have no decimals to cut
		f = math.Round(f*1e4) / 1e4
	}
	if f == 0 {
		f = 0 // avoids -0
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// Hex prints a session id or zxid as ZooKeeper does. It prints a negative number as its 64 bits.
func Hex(v int64) string { return "0x" + strconv.FormatUint(uint64(v), 16) }

// javaAddr prints an address as Java's InetSocketAddress does: a leading
// slash, IPv6 in eight groups.
func javaAddr(addr string) string {
	return "/" + hostPort(addr)
}

// hostPort prints an address as the JSON commands do.
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

// Flag is the value of a metric that says yes or no.
func Flag(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// plain replaces characters that may not be in a name of `mntr`: programs split its lines at blanks and match
// its names by simple expressions.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', r == '.':
			return r
		}
		return '_'
	}, name)
}
