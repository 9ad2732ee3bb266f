package sim

import (
	"flag"
	"fmt"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/test/race"
)

var modelFlag = flag.Bool("sim.model", false, "the larger case of the model of decision 9")

// TestR9AheadModel explores every order of events in a small cluster whose leader's log runs ahead of its
// disk: three servers, each of which may lose its power once, three entries, and as many terms as it takes to
// do harm. Two servers must never apply different entries at one index. Then the test drops each rule of
// decision 9 in turn and must find harm, which shows that the rule is necessary.
func TestR9AheadModel(t *testing.T) {
	race.Alone(t)
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // to save memory: the search keeps all that it allocates
	all := aheadRules{applyWaits: true, commitBounded: true, followersSync: true, noopSynced: true,
		settled: true}
	small := aheadCase{terms: 3, entries: 3, clients: 3, crashes: 1}
	switch {
	case testing.Short():
		small.entries, small.clients = 2, 2 // a larger walk takes a minute on a busy processor
	case *modelFlag:
		small.terms, small.entries, small.clients = 4, 4, 4
	}
	states, harm := walk(all, small)
	if harm != nil {
		t.Fatalf("with all rules:\n%v", harm)
	}
	t.Logf("all rules: %d states, no harm", states)
	for name, without := range map[string]struct {
		aheadCase
		leave func(*aheadRules)
	}{
		"applied before it is durable":             {small, func(r *aheadRules) { r.applyWaits = false }},
		"commit index unbounded":                   {small, func(r *aheadRules) { r.commitBounded = false }},
		"followers answer before they are durable": {small, func(r *aheadRules) { r.followersSync = false }},
		"a leader's first entry is not synced": {aheadCase{4, 4, 0, 1}, func(r *aheadRules) {
			r.noopSynced = false
		}},
	} {
		if testing.Short() && name != "followers answer before they are durable" {
			continue // the other cases show harm only with three entries
		}
		rules := all
		without.leave(&rules)
		states, harm := walk(rules, without.aheadCase)
		if harm == nil {
			t.Errorf("%s: not found in %d states", name, states)
			continue
		}
		t.Logf("%s: found after %d states:\n%v", name, states, harm)
	}
}

// aheadRules says which rules of docs/decisions/0009 hold.
type aheadRules struct {
	applyWaits    bool // an entry is applied when it is durable on the server that applies it
	commitBounded bool // a server announces no commit index beyond its durable entries
	followersSync bool // a follower syncs before it answers
	noopSynced    bool // a leader syncs the first entry of its term before it sends it
	settled       bool // a server syncs all its entries before it accepts a newer term
}

// aheadCase limits how far walk() goes.
type aheadCase struct {
	terms   uint8
	entries uint8 // limit of the entries that are made
	clients uint8 // limit of the entries that are not the first of a term
	crashes uint8 // limit of the crashes of each server
}

const modelLog = 4 // the longest log, in entries

// modelServer is one server. An entry is identified by its index and its term: a term has one leader, and
// that leader does not lead it again after a crash.
type modelServer struct {
	term, n, durable, commit, applied, crashes uint8
	leads                                      bool
	log                                        [modelLog]uint8 // the term of each entry
	match                                      [3]uint8        // at a leader: what each server surely has
}

// modelState is the state of the whole cluster.
type modelState struct {
	s       [3]modelServer
	applied [modelLog]uint8 // by index: the term of the entry that any server has applied
	entries uint8
	clients uint8
}

// modelStep is one event at server i. Some events also name a second server, j.
type modelStep struct {
	what       byte
	i, j, a, b uint8
}

var stepTexts = map[byte]string{
	'a': "%[1]d appends entry %[3]d of term %[4]d, in memory",
	's': "%[1]d syncs entry %[3]d",
	'x': "%[1]d applies entry %[3]d of term %[4]d",
	'c': "%[1]d loses its power and keeps %[3]d of %[4]d entries",
	'e': "%[1]d leads in term %[3]d by the vote of %[2]d; its first entry is %[4]d",
	't': "%[1]d hears of term %[3]d from %[2]d",
	'l': "%[1]d sends entries up to %[3]d and commit %[4]d to %[2]d, the answer is lost",
	'r': "%[1]d sends entries up to %[3]d and commit %[4]d to %[2]d, which answers",
}

// harm is the list of steps after which two servers have applied different entries.
type harm []modelStep

func (h harm) String() string {
	out := ""
	for n, s := range h {
		out += fmt.Sprintf("%3d ", n+1) + fmt.Sprintf(stepTexts[s.what]+"\n", s.i, s.j, s.a, s.b)
	}
	return out
}

// walk() visits all states in the order of their distance from the start.
func walk(r aheadRules, c aheadCase) (visited int, found harm) {
	// `from` says how the search reached each state in the queue. It holds indices, because pointers would slow
	// the garbage collector.
	type from struct {
		at   uint32
		step modelStep
	}
	// The first event is an election; any server may win it.
	var start modelState
	start.elect(r, c, 0, 1, func(to modelState, _ bool, _ modelStep) { start = to })
	seen := map[modelState]struct{}{start: {}}
	queue, how := []modelState{start}, []from{{}}
	for at := 0; at < len(queue) && found == nil; at++ {
		state := queue[at]
		state.next(r, c, func(to modelState, bad bool, step modelStep) {
			switch _, known := seen[to]; {
			case found != nil:
			case bad:
				found = harm{step}
				for i := uint32(at); i != 0; i = how[i].at {
					found = append(found, how[i].step)
				}
				slices.Reverse(found)
			case !known:
				seen[to] = struct{}{}
				queue, how = append(queue, to), append(how, from{uint32(at), step})
			}
		})
	}
	return len(seen), found
}

// next() calls tell() with every state that can follow st.
func (st modelState) next(r aheadRules, c aheadCase, tell func(to modelState, bad bool, step modelStep)) {
	for i := range st.s {
		s := &st.s[i]
		id := uint8(i)
		if s.leads && st.entries < c.entries && st.clients < c.clients && s.n < modelLog {
			to := st
			to.clients++
			to.append(i)
			tell(to, false, modelStep{'a', id, 0, s.n + 1, s.term})
		}
		if s.durable < s.n {
			to := st
			to.s[i].durable++
			tell(to, false, modelStep{'s', id, 0, s.durable + 1, 0})
		}
		if s.applied < s.commit && (!r.applyWaits || s.applied < s.durable) {
			to := st
			k := s.applied
			to.s[i].applied++
			bad := st.applied[k] != 0 && st.applied[k] != s.log[k]
			to.applied[k] = s.log[k]
			tell(to, bad, modelStep{'x', id, 0, k + 1, s.log[k]})
		}
		if s.crashes < c.crashes {
			for keep := s.durable; keep <= s.n; keep++ {
				to := st
				to.crash(i, keep)
				tell(to, false, modelStep{'c', id, 0, keep, s.n})
			}
		}
		for j := range st.s {
			if i == j {
				continue
			}
			st.elect(r, c, i, j, tell)
			if s.leads {
				st.replicate(r, i, j, tell)
			}
		}
	}
}

func (st *modelState) append(i int) {
	s := &st.s[i]
	s.log[s.n] = s.term
	s.n++
	s.match[i] = s.n // raft counts the leader's own log at once towards the majority
	st.entries++
}

func (st *modelState) crash(i int, keep uint8) {
	s := &st.s[i]
	was := *s
	*s = modelServer{term: was.term, n: keep, durable: keep, crashes: was.crashes + 1}
	copy(s.log[:keep], was.log[:keep])
}

// newer() makes a server adopt a newer term.
func (s *modelServer) newer(r aheadRules, term uint8) {
	if r.settled {
		s.durable = s.n
	}
	s.term, s.leads, s.match = term, false, [3]uint8{}
}

// elect() makes server i the leader, with the vote of server j.
func (st modelState) elect(r aheadRules, c aheadCase, i, j int, tell func(modelState, bool, modelStep)) {
	a, b := &st.s[i], &st.s[j]
	term := max(a.term, b.term) + 1
	if term > c.terms || st.entries >= c.entries || a.n >= modelLog {
		return
	}
	if a.lastTerm() < b.lastTerm() || a.lastTerm() == b.lastTerm() && a.n < b.n {
		return
	}
	a.newer(r, term)
	b.newer(r, term)
	a.leads = true
	st.append(i)
	if r.noopSynced {
		a.durable = a.n
	}
	tell(st, false, modelStep{'e', uint8(i), uint8(j), term, a.n})
}

func (s *modelServer) lastTerm() uint8 {
	if s.n == 0 {
		return 0
	}
	return s.log[s.n-1]
}

// replicate() sends entries, some or all, from i to j; the answer may be lost.
func (st modelState) replicate(r aheadRules, i, j int, tell func(modelState, bool, modelStep)) {
	l, f := &st.s[i], &st.s[j]
	if f.term > l.term {
		term := f.term
		to := st
		to.s[i].newer(r, term)
		tell(to, false, modelStep{'t', uint8(i), uint8(j), term, 0})
		return
	}
	same := uint8(0)
	for same < min(l.n, f.n) && l.log[same] == f.log[same] {
		same++
	}
	told := l.commit
	if r.commitBounded {
		told = min(told, l.durable)
	}
	for upTo := same; upTo <= l.n; upTo++ {
		to := st
		l, f := &to.s[i], &to.s[j]
		if f.term < l.term || f.leads {
			f.newer(r, l.term)
		}
		if upTo > same {
			f.durable = min(f.durable, same) // the truncation is durable; the entries after it are not yet
			copy(f.log[:], l.log[:upTo])
			clear(f.log[upTo:])
			f.n = upTo
			if r.followersSync {
				f.durable = f.n
			}
		}
		f.commit = max(f.commit, min(told, upTo))
		tell(to, false, modelStep{'l', uint8(i), uint8(j), upTo, told})
		l.match[j] = max(l.match[j], upTo)
		l.count()
		tell(to, false, modelStep{'r', uint8(i), uint8(j), upTo, told})
	}
}

// count() computes the commit index as raft's leader does.
func (s *modelServer) count() {
	sorted := s.match
	slices.Sort(sorted[:])
	if k := sorted[1]; k > s.commit && s.log[k-1] == s.term {
		s.commit = k
	}
}
