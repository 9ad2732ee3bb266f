package recipe

import (
	"slices"
	"strings"
)

// Kind is the purpose of a lock.
type Kind string

// The kinds.
const (
	KindLock      Kind = "lock" // Curator's leader selector and kazoo's election are locks too
	KindRWLock    Kind = "rwlock"
	KindSemaphore Kind = "semaphore"
	KindLatch     Kind = "latch"  // Curator's leader latch: the first contender leads
	KindSimple    Kind = "simple" // one node; the session that creates it holds the lock
	KindParty     Kind = "party"  // participants that do not wait for each other
	KindUnknown   Kind = "unknown"
)

// Kinds lists all kinds.
var Kinds = []Kind{KindLock, KindRWLock, KindSemaphore, KindLatch, KindSimple, KindParty, KindUnknown}

// Lock is the entry of one lock in a list of locks.
type Lock struct {
	Path    string   `json:"path"`
	Kind    Kind     `json:"kind"`
	Layouts []Layout `json:"layouts"` // one, unless Mixed
	// Mixed says that the directory has contenders that cannot see each other, so each layout has its own
	// holders.
	Mixed bool `json:"mixed,omitempty"`
	// HeldTwice says that holders of two layouts hold the lock at the same time, at least one of them
	// exclusively.
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
	Participants []Entry `json:"participants"` // contenders that wait for no turn, or whose roles are unknown
	// Others are some of the children that are not contenders.
	Others []string `json:"others,omitempty"`
	// Unlisted says that some clients may not list the contenders; see Dir of package turns.
	Unlisted bool `json:"-"`
}

// lists() returns all contenders.
func (q *Queue) lists() [3][]Entry { return [3][]Entry{q.Holders, q.Waiters, q.Participants} }

// Over returns how many holders have reported that their maximum hold is over.
func (q *Queue) Over() (n int) {
	for i := range q.Holders {
		e := &q.Holders[i]
		if e.Owner == nil && !strings.Contains(e.raw, `"over":`) {
			continue // decoding every record would be most of the work when all locks are read
		}
		if o, ok := e.Record(); ok && o.Over {
			n++
		}
	}
	return n
}

// Find returns the contender of a node. It returns nil if the queue has no such node.
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

// OldestWait returns when the longest wait began. It returns 0 if there are no waiters.
func (q *Queue) OldestWait() (since int64) {
	for i := range q.Waiters {
		if s := q.Waiters[i].Since; since == 0 || s < since {
			since = s
		}
	}
	return since
}

// OldestHold returns when the oldest present hold began. It returns 0 if that is not known or if the lock is
// free.
func (q *Queue) OldestHold() (since int64) {
	for i := range q.Holders {
		s := max(q.Holders[i].Since, q.Holders[i].HeldSince)
		if since == 0 || s < since {
			since = s
		}
	}
	return since
}

// recipes names the recipes for each kind of lock, by the program that made the nodes.
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
