package client

import (
	"encoding/binary"

	"github.com/zlockd/zlockd/client/recipe"
)

// sessionOf returns the session that asked for the node, if this package made the id.
func sessionOf(id recipe.ID) (sid int64, ours bool) {
	a, b := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	if versionOf(id) != 8 || b>>62 != 2 {
		return 0, false
	}
	return int64(a>>16<<16 | (a&0xfff)<<4 | b>>58&0xf), true
}

// versionOf is the UUID's: 8 for ours, 4 for Curator's.
func versionOf(id recipe.ID) byte { return id[6] >> 4 }

// findID finds an id anywhere in a name, in either form.
func findID(name string) (recipe.ID, bool) {
	for i := 0; i+32 <= len(name); i++ {
		if i+36 <= len(name) {
			if id, ok := recipe.ParseUUID(name[i : i+36]); ok {
				return id, true
			}
		}
		if id, ok := recipe.ParseHex(name[i : i+32]); ok {
			return id, true
		}
	}
	return recipe.ID{}, false
}
