package locks

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Kind is what a lock is for.
type Kind string

// The kinds.
const (
	Lock      Kind = "lock" // Curator's leader selector and kazoo's election are locks, too
	RWLock    Kind = "rwlock"
	Semaphore Kind = "semaphore"
	Latch     Kind = "latch"  // Curator's leader latch: the first leads
	Simple    Kind = "simple" // one node; whoever creates it holds
	Party     Kind = "party"  // nobody waits for anybody
	Unknown   Kind = "unknown"
)

// Kinds lists all kinds.
var Kinds = []Kind{Lock, RWLock, Semaphore, Latch, Simple, Party, Unknown}

// Queue is one lock at one moment.
type Queue struct {
	Path    string
	Kind    Kind
	Layouts []Layout // one, unless Mixed
	// Mixed says that contenders are there that cannot see each other: each
	// layout has holders of its own.
	Mixed  bool
	Policy string // of layout rw1
	Limit  int    // of a semaphore, 0 if it is not stored
	Next   int32  // the number the next contender will get

	Holders      []Contender
	Waiters      []Contender // in the order of their turns
	Participants []Contender // of whom it is not known, or does not matter, who holds
	Total        int         // contenders in all; more than the above if there are too many
}

// Contender is one node of a queue.
type Contender struct {
	Node    string // relative to the lock's path; "" is the node at that path
	Layout  Layout
	Mode    Mode
	Maker   string // the program that made the node, as far as its name tells
	Session int64
	Token   int64 // czxid
	Since   int64 // when the node was made, ms since 1970 by the leader's clock
	Held    int64 // since when it holds, as far as known; else 0 and not before Since
	Version int32
	Hidden  bool // world:anyone may not read the data
	// BlockedBy are the nodes waited for: for all of them, or for Any.
	BlockedBy []string
	Any       bool
	// Watch says that the contender is known by its watch only. It may wait, or
	// merely look on.
	Watch bool

	data string
}

// maxRecord bounds the records that package client writes.
const maxRecord = 2 << 10

// Owner is what a contender of package client says of itself. Nothing depends
// on it.
type Owner struct {
	Version   int     `json:"v,omitempty"`
	Host      string  `json:"host,omitempty"`
	PID       int     `json:"pid,omitempty"`
	Cmd       string  `json:"cmd,omitempty"`
	User      string  `json:"user,omitempty"`
	Client    string  `json:"client,omitempty"`
	Task      string  `json:"task,omitempty"`
	Reason    string  `json:"reason,omitempty"`
	Revocable bool    `json:"revocable,omitempty"`
	Breakable bool    `json:"breakable,omitempty"`
	MaxHold   string  `json:"maxHold,omitempty"`
	Grace     string  `json:"grace,omitempty"`
	Held      bool    `json:"held,omitempty"`
	Revoke    *Revoke `json:"revoke,omitempty"`
}

// Revoke is a wish that a contender leaves.
type Revoke struct {
	By       string `json:"by,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Deadline string `json:"deadline,omitempty"`
}

// CuratorRevoke is the data by which Curator asks a contender to leave.
const CuratorRevoke = "__REVOKE__"

// Owner returns what the contender says of itself, if it does.
func (c *Contender) Owner() (Owner, bool) {
	var o Owner
	if c.data == "" || len(c.data) > maxRecord || c.data[0] != '{' || json.Unmarshal([]byte(c.data), &o) != nil || o.Version != 1 {
		return Owner{}, false
	}
	return o, true
}

// Asked tells whether the contender has been asked to leave.
func (c *Contender) Asked() bool {
	if c.data == CuratorRevoke {
		return true
	}
	o, ok := c.Owner()
	return ok && o.Revoke != nil
}

// Data returns the node's data as text of at most n bytes.
func (c *Contender) Data(n int) string {
	cut := c.data
	if len(cut) > n {
		for n > 0 && !utf8.RuneStart(cut[n]) {
			n--
		}
		cut = cut[:n]
	}
	return strings.ToValidUTF8(cut, "\uFFFD")
}

// Party returns who waits or holds, for the wait-for graph: the task that the
// node names, or its session.
func (c *Contender) Party() (task string) {
	if !strings.Contains(c.data, `"task"`) {
		return ""
	}
	o, _ := c.Owner()
	return o.Task
}

// Target returns the path of the contender's node.
func (q *Queue) Target(node string) string {
	switch {
	case node == "":
		return q.Path
	case node[0] == '/': // kazoo's semaphore has its queue elsewhere
		return node
	}
	return join(q.Path, node)
}

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// Find returns the contender of a node, nil if it is not there.
func (q *Queue) Find(node string) *Contender {
	for _, list := range [][]Contender{q.Holders, q.Waiters, q.Participants} {
		for i := range list {
			if list[i].Node == node {
				return &list[i]
			}
		}
	}
	return nil
}

// OldestWait returns since when the longest waiting contender waits, 0 if none
// does.
func (q *Queue) OldestWait() (since int64) {
	for i := range q.Waiters {
		if s := q.Waiters[i].Since; since == 0 || s < since {
			since = s
		}
	}
	return since
}

// OldestHold returns since when the lock has been held at least by its present
// holders, 0 if nobody holds.
func (q *Queue) OldestHold() (since int64) {
	for i := range q.Holders {
		s := max(q.Holders[i].Since, q.Holders[i].Held)
		if since == 0 || s < since {
			since = s
		}
	}
	return since
}

// recipes are the names of what uses a layout, by the program that made it.
var recipes = map[Kind]map[string]string{
	Lock: {
		byUs: "zlock lock", byCurator: "Curator mutex or leader selector", byGo: "go-zookeeper lock",
		byKazoo: "kazoo lock or election", byC: "ZooKeeper's lock recipe",
	},
	RWLock:    {byUs: "zlock read-write lock", byCurator: "Curator read-write lock", byKazoo: "kazoo read-write lock"},
	Semaphore: {byUs: "zlock semaphore", byCurator: "Curator semaphore", byKazoo: "kazoo semaphore"},
	Latch:     {byUs: "zlock leader latch", byCurator: "Curator leader latch"},
	Party:     {byKazoo: "kazoo party"},
}

// Recipe says in words what kind of lock of which libraries it is.
func (q *Queue) Recipe() string {
	var words []string
	seen := map[string]bool{}
	for _, list := range [][]Contender{q.Holders, q.Waiters, q.Participants} {
		for i := range list {
			w := recipes[q.Kind][list[i].Maker]
			if w != "" && !seen[w] {
				seen[w] = true
				words = append(words, w)
			}
		}
	}
	switch {
	case len(words) > 0:
		return strings.Join(words, ", ")
	case q.Kind == Simple:
		return "one ephemeral node"
	case q.Kind == Unknown:
		return "not known"
	}
	return "sequential nodes"
}
