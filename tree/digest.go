package tree

import (
	"encoding/binary"
	"math/bits"
)

// digest is a hash over the history of a tree: every change is mixed into it, with enough of the
// resulting state that trees which ever differed soon have different digests. It guards against
// servers drifting apart, not against forgery.
type digest uint64

func (h *digest) int(v uint64) { h.pair(v, 0) }

func (h *digest) pair(v, w uint64) {
	hi, lo := bits.Mul64(uint64(*h)^v^0x9e3779b97f4a7c15, w^0xd6e8feb86659fd93)
	*h = digest(hi ^ lo ^ v)
}

func (h *digest) string(s string) {
	h.int(uint64(len(s)))
	var w [16]byte
	for len(s) >= 16 {
		copy(w[:], s)
		h.pair(binary.LittleEndian.Uint64(w[:8]), binary.LittleEndian.Uint64(w[8:]))
		s = s[16:]
	}
	if s != "" {
		w = [16]byte{}
		copy(w[:], s)
		h.pair(binary.LittleEndian.Uint64(w[:8]), binary.LittleEndian.Uint64(w[8:]))
	}
}
