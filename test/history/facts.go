package history

import (
	"cmp"
	"maps"
	"slices"

	"github.com/zlockd/zlockd/jute"
)

// facts are what replies and events prove about a zxid without an acknowledged write: the zxid
// of an unanswered write, or of a session's end.
type facts struct {
	created map[string]*jute.Stat // Stat of each created node; nil if only an event shows the node
	set     map[string]*jute.Stat
	data    map[string][]byte // data of nodes that were created or set, if a client read the data
	deleted map[string]bool
	sets    map[string]int // by path: the most events that one connection received for sets of the node
	lists   map[string]int // by parent: how often its list of children changed, at least
	record  int            // index of a record that proves these facts
	by      *demand        // the demand for the write that explains the facts; nil: none
}

// fact() returns the facts of a zxid. It returns nil if the zxid is that of an acknowledged write. But it
// returns the facts of a closeSession, because a closeSession may delete nodes that are not known to belong
// to the session.
func (c *checker) fact(zxid int64, record int) *facts {
	if by, ok := c.acked[zxid]; ok && c.records[by].Op.Op != jute.OpCloseSession || zxid <= 0 {
		return nil
	}
	f, ok := c.facts[zxid]
	if !ok {
		f = &facts{
			created: map[string]*jute.Stat{}, set: map[string]*jute.Stat{}, data: map[string][]byte{},
			deleted: map[string]bool{}, sets: map[string]int{}, lists: map[string]int{}, record: record,
		}
		c.facts[zxid] = f
	}
	return f
}

// findFacts gathers the facts of all zxids, and the writes that may explain them.
func (c *checker) findFacts() {
	c.facts = map[int64]*facts{}
	type change struct {
		conn int
		zxid int64
		typ  jute.EventType
		path string
	}
	told := map[change]int{}
	for i, r := range c.records {
		switch {
		case r.Event != nil && c.within(r.Event.Path):
			f := c.fact(r.Event.Zxid, i)
			if f == nil {
				continue
			}
			ch := change{r.Event.Conn, r.Event.Zxid, r.Event.Type, r.Event.Path}
			told[ch]++
			switch path := r.Event.Path; r.Event.Type {
			case jute.EventCreated:
				f.created[path] = f.created[path] //nolint:staticcheck // adds the path if it is missing
			case jute.EventDataChanged:
				f.set[path] = f.set[path] //nolint:staticcheck // adds the path if it is missing
				f.sets[path] = max(f.sets[path], told[ch])
			case jute.EventDeleted:
				f.deleted[path] = true
			case jute.EventChildrenChanged:
				f.lists[path] = max(f.lists[path], told[ch])
			}
		case r.Backup != nil:
			for j := range r.Backup.Nodes {
				x := &r.Backup.Nodes[j]
				c.statFacts(i, &Step{Op: jute.OpGetData, Path: x.Path, Stat: &x.Stat}, x.Data)
			}
		case r.Op != nil && r.Op.Unknown:
			c.addLoose(r.Op) // index() has already gathered the replies that bound its zxid
		case r.Op != nil && r.Op.Code == jute.OK:
			c.statFacts(i, &r.Op.Step, r.Op.Value)
			for j := range r.Op.Steps {
				c.statFacts(i, &r.Op.Steps[j], nil)
			}
		}
	}
	// Deletions wait for the replay, because they may have other causes.
	for _, zxid := range sorted(c.facts) {
		f := c.facts[zxid]
		if len(f.created)+len(f.set) > 0 {
			f.by = c.demand(c.candidates(zxid, f))
		}
	}
}

func (c *checker) statFacts(record int, s *Step, value []byte) {
	path := s.Path
	if s.Created != "" {
		path = s.Created
	}
	if s.Stat == nil || !c.within(path) {
		return
	}
	if f := c.fact(s.Stat.Czxid, record); f != nil {
		if was := f.created[path]; was == nil || was.Mzxid != was.Czxid {
			f.created[path] = s.Stat // prefer a Stat from before the next change of the node
		}
		if s.Op == jute.OpGetData && s.Stat.Mzxid == s.Stat.Czxid {
			f.data[path] = value
		}
	}
	if s.Stat.Mzxid == s.Stat.Czxid {
		return
	}
	if f := c.fact(s.Stat.Mzxid, record); f != nil {
		f.set[path] = s.Stat
		if s.Op == jute.OpGetData {
			f.data[path] = value
		}
	}
}

// sorted() returns the keys of m in order: the checker's judgement must not depend on the order of maps.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
