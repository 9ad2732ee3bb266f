package recipe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is the purpose of a lock.
type Kind string

// The kinds.
const (
	KindLock      Kind = "lock" // Curator's leader selector and kazoo's election are locks too
	KindRWLock    Kind = "rwlock"
	KindSemaphore Kind = "semaphore"
	KindLatch     Kind = "latch"  // Curator's leader latch: the first leads
	KindSimple    Kind = "simple" // one node; the session that creates it holds
	KindParty     Kind = "party"  // participants that do not wait for each other
	KindUnknown   Kind = "unknown"
)

// Kinds lists all kinds.
var Kinds = []Kind{KindLock, KindRWLock, KindSemaphore, KindLatch, KindSimple, KindParty, KindUnknown}

// Mode is the right that a contender has or waits for.
type Mode string

// The modes.
const (
	Exclusive   Mode = "exclusive"
	Shared      Mode = "shared"
	Permit      Mode = "permit"      // a permit of a semaphore
	Participant Mode = "participant" // no right: the node only shows that its session exists
)

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

// Lock is the entry of one lock in a list of locks.
type Lock struct {
	Path    string   `json:"path"`
	Kind    Kind     `json:"kind"`
	Layouts []Layout `json:"layouts"` // one, unless Mixed
	// Mixed says that the directory has contenders that cannot see each other, so each layout has its own
	// holders.
	Mixed bool `json:"mixed,omitempty"`
	// HeldTwice says that two such holders hold the lock, at least one of them exclusively.
	HeldTwice bool   `json:"heldTwice,omitempty"`
	Policy    string `json:"policy,omitempty"` // policy of LayoutPolicy
	Limit     int    `json:"limit,omitempty"`  // number of permits of a semaphore; 0: not stored
	Next      int32  `json:"nextSeq"`          // the number that the next contender gets
	Total     int    `json:"total"`            // number of contenders, listed or not
}

// Layout returns the layouts as one word, such as "curator+kazoo".
func (l *Lock) Layout() string {
	words := make([]string, len(l.Layouts))
	for i, layout := range l.Layouts {
		words[i] = layout.String()
	}
	return strings.Join(words, "+")
}

// Target returns the path of a contender's node.
func (l *Lock) Target(node string) string {
	switch {
	case node == "":
		return l.Path
	case node[0] == '/': // the queue of kazoo's semaphore is elsewhere
		return node
	}
	return Join(l.Path, node)
}

// Queue is a lock with its contenders, at one moment.
type Queue struct {
	Lock
	Holders      []Entry `json:"holders"`
	Waiters      []Entry `json:"waiters"`      // in the order in which they will get the lock
	Participants []Entry `json:"participants"` // contenders that only take part, or whose roles are unknown
	// Others are some of the children that are not contenders.
	Others []string `json:"others,omitempty"`
	// Unlisted says that some clients may not list the contenders; see Dir.
	Unlisted bool `json:"-"`
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
	// BlockedBy are the nodes for which this contender waits: for all of them, or with Any for one.
	BlockedBy []string `json:"blockedBy,omitempty"`
	Any       bool     `json:"any,omitempty"`
	// Watch says that only a watch of the contender is known. It may wait, or only observe.
	Watch bool `json:"watch,omitempty"`
	// Tell sets Owner and Data: the record in the node, and the beginning of its other data.
	Owner  *Owner `json:"owner,omitempty"`
	Data   string `json:"data,omitempty"`
	Hidden bool   `json:"hidden,omitempty"` // the caller may not read the node

	Version int32  `json:"-"` // version of the node
	Place   string `json:"-"` // its node in the queue, for which other contenders also wait
	raw     string // the node's data
}

// CuratorRevoke is the data with which Curator asks a contender to leave.
const CuratorRevoke = "__REVOKE__"

// shownData bounds how much of a node's data Tell shows.
const shownData = 200

// Tell fills in Owner and Data. To decode every record would be most of the work of a look at all locks, so
// callers call Tell only for entries that they show.
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

// Asked returns the revocation of the contender, if there is one.
func (e *Entry) Asked() (Revocation, bool) {
	switch {
	case e.raw != "":
		return RevocationIn([]byte(e.raw))
	case e.Owner != nil && e.Owner.Revoke != nil:
		return *e.Owner.Revoke, true
	}
	return RevocationIn([]byte(e.Data))
}

// Askable reports whether a client can ask the contender to leave: whether its program looks for a
// revocation in its node.
func (e *Entry) Askable() bool {
	if e.Token == 0 || e.Hidden {
		return false // only its watch is known, or its record is missing
	}
	_, ours := e.Record()
	return ours || e.Maker == MakerCurator || e.Maker == MakerSelf
}

// task returns the task that the node names.
func (e *Entry) task() string {
	if e.Owner == nil && !strings.Contains(e.raw, `"task"`) {
		return ""
	}
	o, _ := e.Record()
	return o.Task
}

// lists returns all contenders.
func (q *Queue) lists() [3][]Entry { return [3][]Entry{q.Holders, q.Waiters, q.Participants} }

// Over returns how many holders have reported that their maximum hold is over.
func (q *Queue) Over() (n int) {
	for i := range q.Holders {
		e := &q.Holders[i]
		if e.Owner == nil && !strings.Contains(e.raw, `"over":`) {
			continue // without this check, decoding the records would be most of the work of a look at all locks
		}
		if o, ok := e.Record(); ok && o.Over {
			n++
		}
	}
	return n
}

// Find returns the contender of a node, or nil if there is no such node.
func (q *Queue) Find(node string) *Entry {
	for _, list := range q.lists() {
		for i := range list {
			if list[i].Node == node {
				return &list[i]
			}
		}
	}
	return nil
}

// Holds reports whether the contender of a node is among the holders. A waiter without blockers is not a
// holder yet: its client has not noticed its turn.
func (q *Queue) Holds(node string) bool {
	return slices.ContainsFunc(q.Holders, func(h Entry) bool { return h.Node == node })
}

// OldestWait returns when the longest wait began, or 0 if there are no waiters.
func (q *Queue) OldestWait() (since int64) {
	for i := range q.Waiters {
		if s := q.Waiters[i].Since; since == 0 || s < since {
			since = s
		}
	}
	return since
}

// OldestHold returns when the oldest present hold began, if that is known, or 0 if the lock is free.
func (q *Queue) OldestHold() (since int64) {
	for i := range q.Holders {
		s := max(q.Holders[i].Since, q.Holders[i].HeldSince)
		if since == 0 || s < since {
			since = s
		}
	}
	return since
}

// recipes are the names of the recipes that use a layout, by the program that made the nodes.
var recipes = map[Kind]map[Maker]string{
	KindLock: {
		MakerSelf: "zlock lock", MakerCurator: "Curator mutex or leader selector", MakerGo: "go-zookeeper lock",
		MakerKazoo: "kazoo lock or election", MakerZooKeeper: "ZooKeeper's lock recipe",
	},
	KindRWLock: {
		MakerSelf: "zlock read-write lock", MakerCurator: "Curator read-write lock",
		MakerKazoo: "kazoo read-write lock",
	},
	KindSemaphore: {MakerSelf: "zlock semaphore", MakerCurator: "Curator semaphore",
		MakerKazoo: "kazoo semaphore"},
	KindLatch: {MakerSelf: "zlock leader latch", MakerCurator: "Curator leader latch"},
	KindParty: {MakerKazoo: "kazoo party"},
}

// Recipe names the kind of the lock and its libraries, in words.
func (q *Queue) Recipe() string {
	var words []string
	for _, list := range q.lists() {
		for i := range list {
			if w := recipes[q.Kind][list[i].Maker]; w != "" && !slices.Contains(words, w) {
				words = append(words, w)
			}
		}
	}
	switch {
	case len(words) > 0:
		return strings.Join(words, ", ")
	case q.Kind == KindSimple:
		return "one ephemeral node"
	case q.Kind == KindUnknown:
		return "not known"
	}
	return "sequential nodes"
}
