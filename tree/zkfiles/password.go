package zkfiles

import (
	"encoding/binary"

	"github.com/zlockd/zlockd/jute"
)

// Password returns the password that ZooKeeper gives to the session with this id: ZooKeeper stores no
// passwords. It derives them from the id and a constant with Java's random generator, a linear congruence of
// 48 bits.
func Password(session int64) (p [jute.PasswordSize]byte) {
	const secret, multiplier, increment, mask = 0xb3415c00, 0x5deece66d, 0xb, 1<<48 - 1
	seed := (uint64(session) ^ secret ^ multiplier) & mask
	for i := 0; i < len(p); i += 4 {
		seed = (seed*multiplier + increment) & mask
		binary.LittleEndian.PutUint32(p[i:], uint32(seed>>16))
	}
	return p
}
