package state

import "encoding/binary"

// Logged is a request as it stands in the log.
type Logged struct {
	Origin, Birth uint32 // the stream it came by; Origin 0: the leader's own
	Seq           uint64 // its number there
	*Request             // valid only during the call it is given to
}

// ReadEntry calls fn for every request of an entry. It returns the time (ms since 1970) at which
// the leader sealed the entry, and the leader's options.
func ReadEntry(entry []byte, fn func(*Logged) error) (time int64, options byte, err error) {
	if err := CheckEntry(entry); err != nil {
		return 0, 0, err
	}
	time, options = int64(binary.BigEndian.Uint64(entry[6:])), entry[1]&^kindMask
	sets, rest, err := decodeSets(entry)
	if err != nil {
		return time, options, err
	}
	for len(rest) > 0 {
		var bl Block
		if bl, rest, err = NextBlock(rest); err != nil {
			return time, options, err
		}
		requests := bl.Requests
		for i := range uint64(bl.Count) {
			var r Request
			if requests, _, err = decodeRequest(requests, sets, &r, nil); err != nil {
				return time, options, err
			}
			if err := fn(&Logged{bl.Origin, bl.Birth, bl.First + i, &r}); err != nil {
				return time, options, err
			}
		}
	}
	return time, options, nil
}

// DigestZxid returns the zxid that the leader had reached when it proposed an
// OpDigest with this body.
func DigestZxid(body []byte) int64 {
	if len(body) != 16 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(body))
}
