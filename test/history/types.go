package history

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// Step is one operation on one node, alone or inside a multi, with its reply.
type Step struct {
	Op      jute.OpCode
	Path    string
	Data    []byte
	Flags   int32 // flags of a create
	Version int32 // expected version of delete, setData, setACL and check; -1: any
	// ACL is the ACL that a create or a setACL asks for, or that a getACL has read. nil: the open ACL.
	ACL []jute.ACL `json:",omitempty"`

	Code    jute.ErrCode
	Created string     // path given to a created node
	Stat    *jute.Stat // nil if the reply has none
}

// Op is one request of a client and its reply. Times come from one monotonic clock that all clients share.
type Op struct {
	Client  string
	Conn    int   // number of the connection, unique in the history
	Session int64 // id of the connection's session
	Seq     int   // number of the request among those sent on the connection
	Start   time.Duration
	End     time.Duration // when the reply arrived

	Step
	Steps []Step // steps of a multi; Code says whether it took effect as a whole

	Watch   bool             // whether a read asks for a watch
	Mode    int32            // mode of addWatch; watcher type of removeWatches
	Watches *jute.SetWatches // the watches that setWatches or setWatches2 renews

	// Unknown means that no reply came: the connection ended first.
	Unknown  bool
	Zxid     int64    // zxid of the reply's header
	Value    []byte   // data read
	Children []string // children read
}

// shows() returns the highest zxid of a change that the reply tells of.
func (o *Op) shows() int64 {
	zxid := o.Step.shows()
	for i := range o.Steps {
		zxid = max(zxid, o.Steps[i].shows())
	}
	return zxid
}

func (s *Step) shows() int64 {
	if s.Stat == nil {
		return 0
	}
	return max(s.Stat.Czxid, s.Stat.Mzxid, s.Stat.Pzxid)
}

// Event is a notification of a watch. Zxid is the zxid of the change. Zxid is not positive if the event is
// part of the answer to a setWatches.
type Event struct {
	Conn int
	At   time.Duration
	Zxid int64
	Type jute.EventType
	Path string
}

// Connect is a successful handshake.
type Connect struct {
	Client   string
	Conn     int
	Session  int64
	New      bool          // the session was created
	LastZxid int64         // the zxid that the client said it had seen
	Timeout  time.Duration // granted timeout of the session; 0: not recorded
	Start    time.Duration
	End      time.Duration
	// IDs are the identities that the client has proved on this connection, before its first request.
	IDs []jute.ID `json:",omitempty"`
}

// Expired is a server's answer that a session has ended.
type Expired struct {
	Session int64
	At      time.Duration
}

// Digest is the digest that a server reports for its state at a zxid.
type Digest struct {
	Server string
	Zxid   int64
	Sum    uint64
}

// Turn is one request of a contender of a lock, and its answer. A contender is a ticket, with all requests
// that have its secret, or one node of a session.
type Turn struct {
	Lock      string
	Contender string
	Start     time.Duration
	End       time.Duration // when the answer arrived
	Says      Say
	Token     int64         // token of a hold
	Safe      time.Duration // how long a hold surely lasts, from Start on
	Ahead     int           // how many contenders stand before one that waits in the queue
	Opens     bool          // the request opens the ticket if there is none
	Gives     bool          // the request gives the ticket back
	Shares    bool          // the request wants to share the hold with others
	Permits   int           // number of permits of a semaphore; 0: a lock
	Slots     []int         // the numbers of the permits that the contender holds
	Looks     bool          // the request only looks, and may be shown an older state
}

// Say is what an answer says of a contender.
type Say string

// What answers say.
const (
	SaysNothing Say = ""        // no answer came, or the answer changes nothing
	SaysHeld    Say = "held"    // the contender holds the lock
	SaysQueued  Say = "queued"  // the contender waits in the queue
	SaysOver    Say = "over"    // the ticket was given back, or ended in another way
	SaysUnknown Say = "unknown" // there is no such ticket
)

// Draw is one request for a draw from a rate, and its answer. All requests with one secret are for one draw.
type Draw struct {
	Rate   string
	Secret string // empty: the request has no secret and is not repeated
	Start  time.Duration
	End    time.Duration // when the answer arrived
	Limit  int
	Per    time.Duration
	OK     bool          // the draw was granted
	Told   bool          // an earlier request already got this answer
	At     time.Duration // when the draw was granted, by the cluster's clock since 1970
}

// Record is one entry of a history: exactly one of its fields is set. Records of one connection stand in
// the order in which their frames arrived; requests without a reply follow when the connection has ended.
type Record struct {
	Op      *Op
	Event   *Event
	Connect *Connect
	Expired *Expired
	Digest  *Digest
	Turn    *Turn
	Draw    *Draw
	Backup  *Backup
}

// String describes the record on one line.
func (r Record) String() string {
	switch {
	case r.Op != nil:
		o := r.Op
		s := fmt.Sprintf("%s conn %d #%d %v %s", o.Client, o.Conn, o.Seq, o.Op, o.Path)
		if o.Unknown {
			return s + ": no reply"
		}
		return fmt.Sprintf("%s: %v at zxid %d", s, o.Code, o.Zxid)
	case r.Event != nil:
		return fmt.Sprintf("conn %d event %v %s of zxid %d", r.Event.Conn, r.Event.Type, r.Event.Path, r.Event.Zxid)
	case r.Connect != nil:
		return fmt.Sprintf("%s conn %d attached to %#x", r.Connect.Client, r.Connect.Conn, r.Connect.Session)
	case r.Expired != nil:
		return fmt.Sprintf("session %#x reported expired", r.Expired.Session)
	case r.Digest != nil:
		return fmt.Sprintf("server %s has digest %x at zxid %d", r.Digest.Server, r.Digest.Sum, r.Digest.Zxid)
	}
	if t := r.Turn; t != nil {
		return fmt.Sprintf("%s at %s, asked at %v and answered at %v: %s, token %d for %v, %d ahead, "+
			"gives %t, looks %t, shares %t, numbers %v", t.Contender, t.Lock, t.Start, t.End, t.Says, t.Token,
			t.Safe, t.Ahead, t.Gives, t.Looks, t.Shares, t.Slots)
	}
	if d := r.Draw; d != nil {
		return fmt.Sprintf("draw %q from %s, asked at %v and answered at %v: granted %t, told %t, at %v",
			d.Secret, d.Rate, d.Start, d.End, d.OK, d.Told, d.At)
	}
	if r.Backup != nil {
		return r.Backup.String()
	}
	return "empty record"
}

// Recorder collects a history from many goroutines. The goroutine that reads a connection must
// add each record at once, so that the order of arrival is kept.
type Recorder struct {
	mu      sync.Mutex
	records []Record
}

// Add appends a record.
func (r *Recorder) Add(rec Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, rec)
}

// Records returns the records so far.
func (r *Recorder) Records() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records)
}

// Violation is a guarantee that a history shows to be broken.
type Violation struct {
	Rule   string // the broken guarantee: G1 …
	Text   string
	Record int // index of the record that shows it
}

// String describes the violation on one line.
func (v Violation) String() string { return fmt.Sprintf("%s: record %d: %s", v.Rule, v.Record, v.Text) }

// Options bound a check.
type Options struct {
	// Root is the node at and below which everything is checked. Outside it only orders and times are checked.
	// Empty means "/". /zookeeper is never checked.
	Root string
	// Linearizable says that the servers promise linearizable reads: G1 then covers reads too.
	Linearizable bool
	// Max is how many violations are reported; those after the first are often its consequences.
	// 0 means 20.
	Max int
}
