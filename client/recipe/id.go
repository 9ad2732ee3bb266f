package recipe

import (
	"encoding/binary"
	"encoding/hex"
)

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

// isSelfUUID reports whether s, of 36 bytes or more, begins like a UUID of version 8: it checks the dashes,
// the version and the variant.
func isSelfUUID(s string) bool {
	v := s[19]
	return s[14] == '8' && (v == '8' || v == '9' || v == 'a' || v == 'b') && s[8] == '-' && s[13] == '-' &&
		s[18] == '-' && s[23] == '-'
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
