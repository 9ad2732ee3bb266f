package session

import (
	"slices"

	"github.com/zlockd/zlockd/jute"
)

// Session is the replicated part of a session. The tree holds the set of its ephemeral nodes.
type Session struct {
	ID       int64
	Password [jute.PasswordSize]byte
	Timeout  int32   // in ms, as negotiated by the newest attach; at least 1
	Gen      uint32  // attach generation: 1 when the session is created, and one more for each attach
	Owner    uint32  // id of the server with the newest connection
	Addr     string  // the client's address on the newest connection
	Created  int64   // when the session was created: ms since 1970 by the leader's clock
	Ticket   *Ticket // nil: the session belongs to a client, and is not a ticket
}

// Table is the replicated table of sessions. It is not safe for concurrent changes; several reads may run at
// once.
type Table struct {
	next uint64             // counts the ids; its low 56 bits are those of the next id
	byID map[int64]*Session // a Session never changes; Table replaces it

	owned  map[uint32]int // how many sessions each server owns; a missing key means none
	byAddr map[string]int // how many sessions have each address

	tickets *tickets // nil: there has been no ticket yet

	// order[c] holds the ids whose top byte is c, rising. An ended session stays in it until more than half
	// of the sessions in it have ended, so that the end of a session costs little.
	order [256]idList
}

// idList is a rising list of ids with their sessions. The session is nil if it has ended.
type idList struct {
	ids   []int64
	live  []*Session
	ended int
}

// put() stores s under its id. The id must already be in the list of ids.
func (t *Table) put(s *Session) {
	t.byID[s.ID] = s
	l := &t.order[creator(s.ID)]
	at, _ := slices.BinarySearch(l.ids, s.ID)
	l.live[at] = s
}

// NewTable returns an empty table whose ids begin at the low 24 bits of prefix. The prefix keeps the ids of
// two clusters apart. It also keeps the ids of a rebuilt cluster apart from those that its clients still
// remember.
func NewTable(prefix uint32) *Table {
	return &Table{
		next:  uint64(prefix&0xffffff) << prefixShift,
		byID:  make(map[int64]*Session),
		owned: make(map[uint32]int), byAddr: make(map[string]int),
	}
}

// Create adds a session of generation 1 and returns it. The top byte of the id shows operators which server
// has created the session: it is `owner`, or the nearest number in 1..126.
func (t *Table) Create(timeout int32, password [jute.PasswordSize]byte, owner uint32, addr string,
	now int64) Session {
	s := &Session{
		ID:       t.newID(owner),
		Password: password,
		Timeout:  max(timeout, 1),
		Gen:      1,
		Owner:    owner,
		Addr:     addr,
		Created:  now,
	}
	t.insert(s)
	return *s
}

// Adopt adds a session that was created elsewhere. It reports false, and adds nothing, if the id is 0 or in
// use.
func (t *Table) Adopt(s Session) bool {
	if _, taken := t.byID[s.ID]; taken || s.ID == 0 {
		return false
	}
	s.Timeout, s.Gen = max(s.Timeout, 1), max(s.Gen, 1)
	t.insert(&s)
	return true
}

func (t *Table) insert(s *Session) {
	t.byID[s.ID] = s
	t.own(s)
	if s.Ticket != nil {
		t.haveTickets().add(s.ID, s.Ticket)
	}
	l := &t.order[creator(s.ID)]
	if n := len(l.ids); n == 0 || l.ids[n-1] < s.ID {
		l.ids, l.live = append(l.ids, s.ID), append(l.live, s)
		return
	}
	// An id may be lower than others only after the 56 bits have wrapped around, or if the session was
	// adopted.
	at, found := slices.BinarySearch(l.ids, s.ID)
	if found {
		l.live[at] = s
		l.ended-- // reuses the place of an ended session
		return
	}
	l.ids, l.live = slices.Insert(l.ids, at, s.ID), slices.Insert(l.live, at, s)
}

func (t *Table) haveTickets() *tickets {
	if t.tickets == nil {
		t.tickets = newTickets()
	}
	return t.tickets
}

// Get returns the session with this id.
func (t *Table) Get(id int64) (Session, bool) {
	s, ok := t.byID[id]
	if !ok {
		return Session{}, false
	}
	return *s, true
}

// Remove ends a session and reports whether there was one.
func (t *Table) Remove(id int64) bool {
	s, ok := t.byID[id]
	if !ok {
		return false
	}
	t.disown(s)
	if s.Ticket != nil {
		t.tickets.remove(s.ID, s.Ticket)
	}
	delete(t.byID, id)
	l := &t.order[creator(id)]
	at, _ := slices.BinarySearch(l.ids, id)
	l.live[at] = nil
	l.ended++
	if l.ended > 32 && l.ended > len(l.ids)/2 {
		l.shrink()
	}
	return true
}

// shrink() drops the ended sessions and frees their memory.
func (l *idList) shrink() {
	n := len(l.ids) - l.ended
	kept := idList{ids: make([]int64, 0, n), live: make([]*Session, 0, n)}
	for i, s := range l.live {
		if s != nil {
			kept.ids, kept.live = append(kept.ids, l.ids[i]), append(kept.live, s)
		}
	}
	*l = kept
}

// own() counts a session for its server and its address.
func (t *Table) own(s *Session) {
	t.owned[s.Owner]++
	t.byAddr[s.Addr]++
}

// disown() undoes what own() did.
func (t *Table) disown(s *Session) {
	if t.owned[s.Owner]--; t.owned[s.Owner] == 0 {
		delete(t.owned, s.Owner)
	}
	if t.byAddr[s.Addr]--; t.byAddr[s.Addr] == 0 {
		delete(t.byAddr, s.Addr)
	}
}

// OwnedBy returns how many sessions have their newest connection on a server.
func (t *Table) OwnedBy(server uint32) int { return t.owned[server] }

// Of returns how many sessions have their newest connection from an address.
func (t *Table) Of(addr string) int { return t.byAddr[addr] }

// Len returns the number of sessions.
func (t *Table) Len() int { return len(t.byID) }

// All calls f for every session, in the order of ids. f must not change the
// table.
func (t *Table) All(f func(Session)) { t.From(0, len(t.byID), f) }

// From calls f for sessions in the order of ids. It calls f at most `most` times. The first session is the
// one that follows the id `after`, or the first of all if `after` is 0. Its cost does not depend on the
// number of sessions.
func (t *Table) From(after int64, most int, f func(Session)) {
	first := int(creator(after))
	at, found := slices.BinarySearch(t.order[first].ids, after)
	if found {
		at++
	}
	for c := first; c < len(t.order); c, at = c+1, 0 {
		for _, s := range t.order[c].live[at:] {
			if s == nil {
				continue
			}
			if most == 0 {
				return
			}
			f(*s)
			most--
		}
	}
}
