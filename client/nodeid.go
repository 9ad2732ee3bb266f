package client

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/zlockd/zlockd/client/recipe"
)

// newNodeID returns a fresh id for an attempt of session sid.
func newNodeID(sid int64) recipe.ID {
	var r [8]byte
	rand.Read(r[:]) // never fails
	return recipe.NewID(sid, binary.BigEndian.Uint64(r[:]))
}
