package state

import "github.com/zlockd/zlockd/jute"

// Member is a server's description of itself, sent when it opens its stream.
type Member struct {
	ID          uint32
	Incarnation string // incarnation of the server's data directory; empty: the server was removed
	PeerAddr    string
	ClientAddr  string // the address for clients; empty: unknown
}

// Append appends m's encoding.
func (m *Member) Append(b []byte) []byte {
	b = jute.AppendInt(b, int32(m.ID))
	b = jute.AppendString(b, m.Incarnation)
	b = jute.AppendString(b, m.PeerAddr)
	return jute.AppendString(b, m.ClientAddr)
}

func decodeMember(d *jute.Decoder) Member {
	text := func() string {
		s, _ := d.String()
		return string([]byte(s))
	}
	return Member{ID: uint32(d.Int()), Incarnation: text(), PeerAddr: text(), ClientAddr: text()}
}
