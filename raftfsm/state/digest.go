package state

import (
	"encoding/binary"
	"fmt"

	"github.com/zlockd/zlockd/raftfsm/state/entries"
)

// digestEvery is the distance in zxids between remembered digests.
const digestEvery = 128

// Digest is the state's checksum right after a zxid.
type Digest struct {
	Zxid int64
	Sum  uint64
}

// digestRing remembers the last digests, so that this server can compare the leader's digest, which arrives
// later, with its own for the same zxid. It is not part of the snapshot. A zxid whose digest it does not
// remember is not compared.
type digestRing struct {
	ring [64]Digest
	next int
}

func (r *digestRing) note(zxid int64, s *State) {
	if zxid%digestEvery == 0 {
		r.ring[r.next%len(r.ring)] = Digest{zxid, s.Digest()}
		r.next++
	}
}

// LastDigest returns the newest remembered digest, if there is one.
func (s *State) LastDigest() (Digest, bool) {
	if r := &s.digests; r.next > 0 {
		return r.ring[(r.next-1)%len(r.ring)], true
	}
	return Digest{}, false
}

// Digests returns the remembered digests, oldest first.
func (s *State) Digests() []Digest {
	r := &s.digests
	var list []Digest
	for i := max(0, r.next-len(r.ring)); i < r.next; i++ {
		list = append(list, r.ring[i%len(r.ring)])
	}
	return list
}

// checkDigest compares the leader's digest with ours at the same zxid. If they differ, servers hold different
// states, and could grant one lock twice.
func (s *State) checkDigest(body []byte) error {
	if len(body) != 16 {
		return fmt.Errorf("%w: digest of %d bytes", entries.ErrCorrupt, len(body))
	}
	theirs := Digest{int64(binary.BigEndian.Uint64(body)), binary.BigEndian.Uint64(body[8:])}
	if theirs.Zxid > s.zxid {
		// The leader had reached this zxid before it proposed this entry, so every server must have reached
		// it too. Without this check a server that missed a change would never have a digest to compare.
		return fmt.Errorf("state differs from the leader's: the leader was at zxid 0x%x before this entry, and "+
			"this server is at 0x%x; this server must be rebuilt from the others", theirs.Zxid, s.zxid)
	}
	for _, ours := range s.digests.ring {
		if ours.Zxid == theirs.Zxid && ours.Sum != theirs.Sum {
			return fmt.Errorf("state differs from the leader's at zxid 0x%x: digest %016x here, %016x there; this "+
				"server must be rebuilt from the others", ours.Zxid, ours.Sum, theirs.Sum)
		}
	}
	return nil
}

// DigestZxid returns the zxid that the leader had reached when it proposed an
// OpDigest with this body.
func DigestZxid(body []byte) int64 {
	if len(body) != 16 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(body))
}
