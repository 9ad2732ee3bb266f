package tree

import (
	"encoding/binary"
	"math/bits"
)

// digest is a hash over the history of a tree: every change is mixed into it, with enough of the
// resulting state that trees which ever differed soon have different digests. It guards against
// servers drifting apart, not against forgery.
type digest uint64

// The kinds of changes that are mixed in.
const (
	mixCreate = iota + 1
	mixDelete
	mixSetData
	mixSetACL
)

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

// node mixes in a change of kind what, and the node as it is after it.
func (h *digest) node(what uint64, path string, n *node) {
	kind := uint64(n.kind)
	if n.null {
		kind |= 1 << 8
	}
	h.pair(what, kind)
	h.string(path)
	h.string(n.data)
	h.int(n.acl.sum)
	h.pair(uint64(n.czxid), uint64(n.mzxid))
	h.pair(uint64(n.mtime), uint64(n.owner))
	h.pair(uint64(uint32(n.version))<<32|uint64(uint32(n.aversion)), uint64(n.pzxid))
	h.int(uint64(uint32(n.cv))<<32 | uint64(n.children()))
}
