package history

import (
	"math"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// The type loose holds the unanswered writes, by their changes.
type loose struct {
	creates map[string][]*looseStep // creates of ordinary nodes, by path
	seqs    map[string][]*looseStep // creates of sequential nodes, by parent
	deletes map[string][]*looseStep
	sets    map[string][]*looseStep
	acls    map[string][]*looseStep
	under   map[string][]*looseStep // creates and deletes, by parent
}

// looseStep is one step of an unanswered write.
type looseStep struct {
	*Step
	of *looseOp
	by *demand // the demand that the step explains; nil: none
	// `spare` says that the checker has not applied this step. The demand in the field `by` took the whole
	// write, but another write could explain that demand, too. So another demand may take this step.
	spare bool
}

type looseOp struct {
	op    *Op
	steps []*looseStep
	// If the write took effect, its zxid is above floor, which a client saw before the write was sent. Its zxid
	// is not above ceil, which its session has seen on a newer connection.
	floor, ceil int64
}

// within() reports whether the step can have taken effect after the zxid `from` and not after the zxid `to`.
func (l *looseStep) within(from, to int64) bool { return l.of.floor < to && l.of.ceil > from }

// maker() returns the session whose ephemeral node the step makes, 0 for other kinds of nodes.
func (l *looseStep) maker() int64 {
	if ephemeral(l.Step) {
		return l.of.op.Session
	}
	return 0
}

func (c *checker) addLoose(o *Op) {
	if !isWrite(o.Op) || o.Op == jute.OpCloseSession {
		return
	}
	u := &looseOp{op: o, floor: c.replies.before(o.Start), ceil: math.MaxInt64}
	for _, id := range c.session(o.Session).conns {
		if k := c.conns[id]; id != o.Conn && k.begin > o.Start {
			u.ceil = min(u.ceil, k.first)
		}
	}
	if c.loose.creates == nil {
		for _, m := range []*map[string][]*looseStep{&c.loose.creates, &c.loose.seqs, &c.loose.deletes,
			&c.loose.sets, &c.loose.acls, &c.loose.under} {
			*m = map[string][]*looseStep{}
		}
	}
	steps := o.Steps
	if o.Op != jute.OpMulti {
		steps = []Step{o.Step}
	}
	if !canSucceed(steps) {
		return
	}
	for i := range steps {
		s := &looseStep{Step: &steps[i], of: u}
		u.steps = append(u.steps, s)
		if !c.within(s.Path) {
			continue
		}
		switch {
		case isCreate(s.Op) && sequential(s.Flags):
			add(c.loose.seqs, parentOf(s.Path), s)
			add(c.loose.under, parentOf(s.Path), s)
		case isCreate(s.Op):
			add(c.loose.creates, s.Path, s)
			add(c.loose.under, parentOf(s.Path), s)
		case s.Op == jute.OpDelete:
			add(c.loose.deletes, s.Path, s)
			add(c.loose.under, parentOf(s.Path), s)
		case s.Op == jute.OpSetData:
			add(c.loose.sets, s.Path, s)
		case s.Op == jute.OpSetACL:
			add(c.loose.acls, s.Path, s)
		}
	}
}

// canSucceed reports whether in some state all of the steps succeed one after the other.
func canSucceed(steps []Step) bool {
	type known struct {
		gone, ephemeral bool
		version         int32 // -1: unknown
	}
	is := map[string]*known{}
	there := func(path string) (*known, bool) {
		if is[path] == nil {
			is[path] = &known{version: -1}
		}
		return is[path], !is[path].gone
	}
	for i := range steps {
		s := &steps[i]
		if isCreate(s.Op) {
			if p, ok := there(parentOf(s.Path)); !ok || p.ephemeral {
				return false
			}
			if sequential(s.Flags) {
				continue
			}
			if k := is[s.Path]; k != nil && !k.gone {
				return false
			}
			is[s.Path] = &known{ephemeral: ephemeral(s)}
			continue
		}
		k, ok := there(s.Path)
		if !ok {
			return false
		}
		if s.Version >= 0 && s.Op != jute.OpSetACL {
			if k.version >= 0 && k.version != s.Version {
				return false
			}
			k.version = s.Version
		}
		switch {
		case s.Op == jute.OpSetData && k.version >= 0:
			k.version++
		case s.Op == jute.OpDelete:
			for path, kid := range is {
				if !kid.gone && path != s.Path && parentOf(path) == s.Path {
					return false
				}
			}
			k.gone = true
		}
	}
	return true
}

func add(m map[string][]*looseStep, path string, s *looseStep) { m[path] = append(m[path], s) }

func isCreate(op jute.OpCode) bool {
	switch op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
		return true
	}
	return false
}

// Kinds of nodes by the flags of their create.
func sequential(flags int32) bool { return flags == 2 || flags == 3 || flags == 6 }
func ephemeral(s *Step) bool {
	return (s.Flags == 1 || s.Flags == 3) && (s.Op == jute.OpCreate || s.Op == jute.OpCreate2)
}

// swept() reports whether the servers may delete the node on their own.
func swept(s *Step) bool { return s.Op == jute.OpCreateContainer || s.Flags == 5 || s.Flags == 6 }

func parentOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

// suffix is the length of a sequence number.
const suffix = 10

// sequenceOf returns the number at the end of a sequential node's path.
func sequenceOf(path, prefix string) (n int, ok bool) {
	digits, found := strings.CutPrefix(path, prefix)
	if !found || len(digits) != suffix {
		return 0, false
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = 10*n + int(d-'0')
	}
	return n, true
}

// makes() reports whether the step may have created the node at path; st is the node's Stat, nil if unknown.
func (l *looseStep) makes(path string, st *jute.Stat) bool {
	if !isCreate(l.Op) {
		return false
	}
	if sequential(l.Flags) {
		if _, ok := sequenceOf(path, l.Path); !ok {
			return false
		}
	} else if l.Path != path {
		return false
	}
	if st == nil {
		return true
	}
	return st.EphemeralOwner == l.maker()
}

// passing() reports whether a node that the step made can have gone at or before `zxid` without a client's
// delete.
func (c *checker) passing(l *looseStep, zxid int64) bool {
	id := l.maker()
	return swept(l.Step) || id != 0 && (c.session(id).ended || c.session(id).closed > 0 || c.mayEnd(id, zxid))
}

// passedOn reports whether unanswered writes may have replaced n by a new node, and the new node can have
// gone at or before `zxid` without a client's delete. Clients may not have noticed that it was another node.
func (c *checker) passedOn(n *node, zxid int64) bool {
	makes := func(l *looseStep) bool {
		return l.within(n.seenState, zxid) && l.makes(n.path, nil) && c.passing(l, zxid)
	}
	return c.reborn(n, zxid) && slices.ContainsFunc(c.loose.creates[n.path], makes)
}
