package recipe

import (
	"fmt"
	"strconv"
	"strings"
)

// Node is a contender's node that a caller has read.
type Node struct {
	Name    string
	Data    string
	Session int64 // session of an ephemeral node
	Czxid   int64
	Ctime   int64 // ms since 1970, like Mtime
	Mtime   int64
	Version int32
	Hidden  bool // the caller may not read the node's data
}

// Session is a session's id. Its text is hexadecimal.
type Session int64

// String returns the id as 0x100000ae0210023.
func (s Session) String() string { return "0x" + strconv.FormatUint(uint64(s), 16) }

// MarshalText writes what String returns.
func (s Session) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what String returns.
func (s *Session) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 0, 64)
	if err != nil {
		return fmt.Errorf("recipe: %.30q is not the id of a session", b)
	}
	*s = Session(n)
	return nil
}

// Entry is one contender.
type Entry struct {
	Node     string  `json:"node"`     // relative to the lock's path; "": the node at that path
	Position int     `json:"position"` // 1 for the first waiter; 0: does not wait
	Mode     Mode    `json:"mode"`
	Slot     int     `json:"slot,omitempty"` // the number of a permit, see SlotOf
	Layout   Layout  `json:"layout"`
	Maker    Maker   `json:"maker"`
	Session  Session `json:"session"`
	Token    int64   `json:"token,string"` // the zxid of the node's creation; a holder's fencing token
	// Since is when the node was made, in milliseconds since 1970 by the leader's clock. HeldSince is 0 if it
	// is unknown; then the hold began after Since.
	Since     int64 `json:"since"`
	HeldSince int64 `json:"heldSince,omitempty"`
	// BlockedBy are the nodes for which this contender waits. If Any is set, the end of one of them is enough;
	// otherwise the contender waits for all of them.
	BlockedBy []string `json:"blockedBy,omitempty"`
	Any       bool     `json:"any,omitempty"`
	// Watch says that only a watch of the contender is known. The contender may wait, or only observe.
	Watch bool `json:"watch,omitempty"`
	// The method Tell sets Owner to the record in the node, and Data to the beginning of the node's other data.
	Owner  *Owner `json:"owner,omitempty"`
	Data   string `json:"data,omitempty"`
	Hidden bool   `json:"hidden,omitempty"` // the caller may not read the node

	Version int32  `json:"-"` // version of the node
	Place   string `json:"-"` // the contender's queue node, if Node is a hold node; others wait for it too
	raw     string // the node's data
}

// NewEntry returns the entry of the node n. The argument d describes the name of n.
func NewEntry(n *Node, d *Description) Entry {
	e := Entry{
		Node: n.Name, Layout: d.Layout, Mode: d.Kind.Mode(), Maker: d.Maker, Session: Session(n.Session),
		Token: n.Czxid, Since: n.Ctime, Version: n.Version, Hidden: n.Hidden, raw: n.Data,
	}
	// Decode only records with this field. To decode all records would be most of the work.
	if strings.Contains(n.Data, `"held"`) {
		if o, ok := e.Record(); ok && o.Held {
			e.HeldSince = n.Mtime
		}
	}
	return e
}

// shownData bounds how many bytes of a node's data the method Tell shows.
const shownData = 200

// Tell fills in Owner and Data. Callers call it only for entries that they show, because decoding every
// record would be most of the work when all locks are read.
func (e *Entry) Tell() {
	data := e.raw
	if o, ok := e.Record(); ok {
		e.Owner = &o
		data = data[:max(recordAt(data)-1, 0)]
	}
	e.Data = textOf(data, shownData)
}

// Record returns the owner record, if the node has one.
func (e *Entry) Record() (Owner, bool) {
	if e.Owner != nil {
		return *e.Owner, true
	}
	switch e.Maker {
	case MakerCurator, MakerKazoo, MakerGo:
		return Owner{}, false // the data of other programs are never a record
	}
	return ParseOwner([]byte(e.raw))
}

// Raw returns the node's data.
func (e *Entry) Raw() []byte { return []byte(e.raw) }

// Text returns the node's data as text of at most n bytes.
func (e *Entry) Text(n int) string { return textOf(e.raw, n) }

func textOf(data string, n int) string { return strings.ToValidUTF8(CutText(data, n), "\uFFFD") }

// Task returns the task that the node names. It returns "" if the node names no task.
func (e *Entry) Task() string {
	if e.Owner == nil && !strings.Contains(e.raw, `"task"`) {
		return ""
	}
	o, _ := e.Record()
	return o.Task
}
