// Package digest is the hash by which servers notice that their states differ.
package digest

import (
	"encoding/binary"
	"math/bits"
)

// Sum is a hash over the history of a tree: every change is mixed into it, together with a part of the
// resulting state. So trees that differed at any time soon have different digests. It guards against servers
// drifting apart, not against forgery.
type Sum uint64

// Int mixes in a number.
func (h *Sum) Int(v uint64) { h.Pair(v, 0) }

// Pair mixes in two numbers.
func (h *Sum) Pair(v, w uint64) {
	hi, lo := bits.Mul64(uint64(*h)^v^0x9e3779b97f4a7c15, w^0xd6e8feb86659fd93)
	*h = Sum(hi ^ lo ^ v)
}

// Text mixes in a text and its length.
func (h *Sum) Text(s string) {
	h.Int(uint64(len(s)))
	var w [16]byte
	for len(s) >= 16 {
		copy(w[:], s)
		h.Pair(binary.LittleEndian.Uint64(w[:8]), binary.LittleEndian.Uint64(w[8:]))
		s = s[16:]
	}
	if s != "" {
		w = [16]byte{}
		copy(w[:], s)
		h.Pair(binary.LittleEndian.Uint64(w[:8]), binary.LittleEndian.Uint64(w[8:]))
	}
}
