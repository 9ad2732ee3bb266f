package session

// An id that Create gives has 63 bits, so it is positive: 7 bits for the creating server, and then 56 bits
// that count up from a random prefix of the cluster. Sessions that were adopted from elsewhere may have any
// id but 0. Ids are ordered as unsigned numbers.
const (
	counterBits = 56
	counterMask = 1<<counterBits - 1
	prefixShift = 32
	maxCreator  = 126
)

// Renumber makes new ids begin at another prefix.
func (t *Table) Renumber(prefix uint32) { t.next = uint64(prefix&0xffffff) << prefixShift }

// newID counts up, even past the 32 bits below the prefix. So it never returns an id twice, but the prefix
// changes after four billion sessions.
func (t *Table) newID(owner uint32) int64 {
	top := int64(min(max(owner, 1), maxCreator))
	for {
		id := top<<counterBits | int64(t.next&counterMask)
		t.next++
		if _, taken := t.byID[id]; !taken {
			return id
		}
	}
}

// creator() returns the top byte of an id.
func creator(id int64) byte { return byte(uint64(id) >> counterBits) }
