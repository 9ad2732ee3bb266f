package view

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/recipe/waits"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/act"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/server/view/look"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The type told is a Source with the values that a test sets, and an empty tree.
type told struct {
	Source
	status  report.Status
	downs   []observe.Down
	refused map[string]observe.Refusal
}

func (s *told) Status(report.Need) *report.Status { return &s.status }
func (s *told) Downs() []observe.Down             { return s.downs }
func (s *told) View(f func(*state.State)) bool    { f(state.New("")); return true }
func (s *told) Refused(addr string) (observe.Refusal, bool) {
	r, ok := s.refused[addr]
	return r, ok
}

func (s *told) Watching(int64, string) (watching, known bool) { return false, false }
func (s *told) Watchers(string, int) []int64                  { return nil }

func TestTheLineOfAnExpiredSession(t *testing.T) {
	var log strings.Builder
	v := &View{source: &told{status: report.Status{Mode: report.Standalone}}, o: Options{
		Log: slog.New(slog.NewTextHandler(&log, nil))}}
	e := observe.EndedSession{Session: 31, Zxid: 32, PathCount: 9, Addr: "10.0.0.1", Server: 2,
		Timeout: 4 * time.Second, Cause: state.EndExpired, Silent: 4100*time.Millisecond + 5, Lost: "silent",
		LostFor: 7 * time.Millisecond}
	e.Paths = []string{"/a/1", "/b"}
	v.logExpired(&e)
	_, line, _ := strings.Cut(log.String(), "client\" ")
	expect.Equal(t, strings.TrimSpace(line), `session=0x1f zxid=0x20 nodes=9 addr=10.0.0.1 on=2 timeout=4s `+
		`silent=4.1s connection=silent before=7ms paths="[/a/1 /b]"`)
	log.Reset()
	e.Silent, e.Lost, e.Paths = 0, "", nil
	v.logExpired(&e)
	_, line, _ = strings.Cut(log.String(), "client\" ")
	expect.Equal(t, strings.TrimSpace(line), `session=0x1f zxid=0x20 nodes=9 addr=10.0.0.1 on=2 timeout=4s`)
	log.Reset()
	e.Cause = state.EndClosed
	v.logExpired(&e)
	e.Cause = state.EndExpired
	v.source = &told{status: report.Status{Mode: report.Follower}}
	v.logExpired(&e)
	expect.Equal(t, log.String(), "", "of a closed session, or on a follower")
}

func TestReasonsNameWhatHappenedBefore(t *testing.T) {
	const unserved = "; this server was out of service for 2s (election or stall), until "
	const refusal = "; a connection from its address was refused "
	at := time.UnixMilli(1e9)
	before := func(d time.Duration) time.Time { return at.Add(-d) }
	down := func(until time.Duration) observe.Down {
		return observe.Down{Since: before(until + 2*time.Second),
			Until: before(until)}
	}
	for name, c := range map[string]struct {
		cause   state.EndCause
		timeout time.Duration
		downs   []observe.Down
		refused time.Time
		want    string
	}{
		"silent": {state.EndExpired, time.Second, nil, time.Time{}, ""},
		"closed": {state.EndClosed, time.Second, []observe.Down{down(0)}, at, "closed by its client"},
		"just down": {state.EndExpired, time.Second, []observe.Down{down(0)}, time.Time{},
			unserved + "0s before that"},
		"a minute ago": {state.EndExpired, time.Second, []observe.Down{down(time.Minute)}, time.Time{},
			unserved + "1m0s before that"},
		"longer ago": {state.EndExpired, time.Second, []observe.Down{down(61 * time.Second)}, time.Time{}, ""},
		"within a long timeout": {state.EndExpired, 5 * time.Minute, []observe.Down{down(4 * time.Minute)},
			before(5 * time.Minute), unserved + "4m0s before that" + refusal + "5m0s before: too many"},
		"later":            {state.EndExpired, time.Second, []observe.Down{down(-1)}, at.Add(1), ""},
		"refused now":      {state.EndExpired, time.Second, nil, at, refusal + "0s before: too many"},
		"refused long ago": {state.EndExpired, time.Second, nil, before(time.Minute + 1), ""},
	} {
		s := &told{downs: c.downs, refused: map[string]observe.Refusal{}}
		if !c.refused.IsZero() {
			s.refused["h"] = observe.Refusal{Time: c.refused, Why: "too many"}
		}
		e := observe.EndedSession{Cause: c.cause, Time: at, Timeout: c.timeout, Addr: "h"}
		got := viewOf(s).reason(&e)
		expect.Equal(t, strings.TrimPrefix(got, "client silent for its whole timeout"), c.want, "%s", name)
	}
}

// queue() returns a lock whose contenders have the given data, and came at the times 1000, 2000, …
func queue(path string, data ...string) *recipe.Queue {
	d := &turns.Dir{Path: path, Total: len(data), Next: int32(len(data))}
	for i, text := range data {
		d.Nodes = append(d.Nodes, recipe.Node{Name: fmt.Sprintf("lock-%010d", i), Data: text,
			Session: int64(16 + i), Czxid: int64(7 + i), Ctime: int64(1000 * (i + 1)), Mtime: int64(1000 * (i + 1))})
	}
	return &turns.Assemble([]*turns.Dir{d}, &told{})[0]
}

func TestLocksAreFiltered(t *testing.T) {
	lone, two := queue("/app/a", `{"v":1,"host":"Web","task":"t1","cmd":"cc","user":"uu","reason":"Nightly 42"}`),
		queue("/app/ab", "Plain text", "")
	v := &View{o: Options{Now: func() time.Time { return time.UnixMilli(10_000) }}}
	for q, want := range map[string]string{
		"":              "/app/a /app/ab",
		"prefix=/app/a": "/app/a", "prefix=/app/": "/app/a /app/ab", "prefix=/ap": "", "prefix=/": "/app/a /app/ab",
		"kind=lock": "/app/a /app/ab", "kind=rwlock": "",
		"waiting": "/app/ab", "waiting=false": "/app/a /app/ab",
		"older=9s": "/app/a /app/ab", "older=9001ms": "", "older=8500ms&waiting": "/app/ab",
		"holder=0x10": "/app/a /app/ab", "holder=16": "/app/a /app/ab", "holder=0x11": "",
		"holder=web": "/app/a", "holder=T1": "/app/a", "holder=cc": "/app/a", "holder=uu": "/app/a",
		"holder=nightly": "/app/a", "holder=plain": "/app/ab", "holder=else": "",
		"holder=42": "/app/a",
	} {
		values := must.Get(url.ParseQuery(q))(t)
		f := v.filterOf(&ask.Query{Values: values})
		var got []string
		for _, k := range []*recipe.Queue{lone, two} {
			if f.match(k) {
				got = append(got, k.Path)
			}
		}
		expect.Equal(t, strings.Join(got, " "), want, "%s", q)
	}
}

func TestRowOfALock(t *testing.T) {
	q := queue("/app/a", "x", "y", "z")
	r := row(q, nil)
	expect.Equal(t, fmt.Sprint(r.HolderCount, r.WaiterCount, r.ParticipantCount, r.OldestWait, r.HeldSince,
		r.Href, len(r.Holders)), "1 2 0 2000 1000/locks/app/a1")
	c := contenderOf(q, &q.Waiters[1], 2, nil)
	expect.Equal(t, fmt.Sprint(c.Position, c.Blockers, c.BlockedBy, c.Target, c.Asked), fmt.Sprint(2, 1,
		[]string{q.Waiters[0].Node}, "/app/a/lock-0000000002", false))
	for _, c := range [][3]int64{{1, 2, -1}, {2, 1, 1}, {0, 2, 1}, {2, 0, -1}, {0, 0, 0}, {3, 3, 0}} {
		expect.Equal(t, int64(compareSince(c[0], c[1])), c[2], "%v", c)
	}
	for _, c := range [][3]int64{{0, 0, 0}, {0, 5, 5}, {5, 0, 5}, {5, 4, 4}, {4, 5, 4}} {
		expect.Equal(t, older(c[0], c[1]), c[2], "%v", c)
	}
}

// Two scans show different holders. The number of grants between them is the number of new holders, or the
// number of contenders that came and no longer wait, whichever is larger.
func TestGrantsBetweenTwoLooks(t *testing.T) {
	plain := queue("/l", "")
	for _, c := range []struct {
		kind    recipe.Kind
		policy  string
		was, is seen
		known   bool
		want    int64
	}{
		{recipe.KindLock, "", seen{}, seen{next: 3, holders: []int64{1}}, false, 1},
		{recipe.KindLock, "", seen{next: 3, holders: []int64{1}}, seen{next: 3, holders: []int64{1}}, true, 0},
		{recipe.KindLock, "", seen{next: 3, holders: []int64{1}}, seen{next: 3, holders: []int64{2}}, true, 1},
		{recipe.KindLock, "", seen{next: 3, waiters: 2}, seen{next: 9, waiters: 1}, true, 7},
		{recipe.KindLock, "", seen{next: 3, waiters: 1}, seen{next: 4, waiters: 2}, true, 0},
		{recipe.KindLock, "fair", seen{next: 3, waiters: 2}, seen{next: 9, waiters: 1}, true, 0},
		{recipe.KindSimple, "", seen{next: 3, waiters: 2}, seen{next: 9, waiters: 1}, true, 0},
		{recipe.KindSemaphore, "", seen{next: 3, waiters: 2}, seen{next: 9, waiters: 1}, true, 0},
	} {
		q := *plain
		q.Kind, q.Policy = c.kind, c.policy
		expect.Equal(t, granted(&q, c.was, c.is, c.known), c.want, "%+v", c)
	}
}

func TestTextsOfThePage(t *testing.T) {
	expect.Equal(t, round(1.29), 1.2)
	expect.Equal(t, short("abcde", 5)+short("abcdef", 5)+shortPath("abcde", 5)+shortPath("abcdef", 5),
		"abcdeabcd…abcde…cdef")
	of := func(path string) string { return prefixOf(new(look.Scan), path) }
	expect.Equal(t, of("/a/b")+of("/a")+of("/")+of("/"+strings.Repeat("x", 64)), "/a/a/other")
	many := map[string]int{}
	for i := range maxPrefixes {
		expect.Equal(t, label(many, fmt.Sprint(i)), fmt.Sprint(i))
		many[fmt.Sprint(i)] = i
	}
	expect.Equal(t, label(many, "new")+label(many, "7"), "other7")
}

func TestNamesOfHolders(t *testing.T) {
	for want, c := range map[string]contenderRow{
		"web[7]": {Entry: recipe.Entry{Owner: &recipe.Owner{Host: "web", PID: 7}, Data: "x"},
			Addr: "h:1"},
		"web":                   {Entry: recipe.Entry{Owner: &recipe.Owner{Host: "web"}}},
		"data":                  {Entry: recipe.Entry{Owner: &recipe.Owner{PID: 7}, Data: "data"}, Addr: "h:1"},
		"h:1 0x10":              {Entry: recipe.Entry{Session: 16, Data: recipe.CuratorRevoke}, Addr: "h:1"},
		"h:2 0x10":              {Entry: recipe.Entry{Session: 16, Data: strings.Repeat("x", 80)}, Addr: "h:2"},
		"0x10":                  {Entry: recipe.Entry{Session: 16}},
		strings.Repeat("x", 79): {Entry: recipe.Entry{Session: 16, Data: strings.Repeat("x", 79)}, Addr: "h:1"},
	} {
		expect.Equal(t, holderOf(c), want)
	}
}

// Rates are measured since the oldest sample. A count that an operator has reset begins at 0.
func TestPacketRates(t *testing.T) {
	v := &View{began: time.Now(), o: Options{Now: time.Now}}
	expect.That(t, v.packetRates(&report.Status{}) == nil, "rates in the first second")
	v.rates.samples = []sample{{at: time.Now().Add(-10 * time.Second), received: 100, sent: 900},
		{at: time.Now()}}
	r := v.packetRates(&report.Status{Received: 600, Sent: 500})
	if expect.That(t, r != nil, "%+v", r) {
		expect.That(t, r.Seconds >= 10, "%+v", r)
		expect.That(t, r.Received > 0, "%+v", r)
		expect.That(t, r.Received <= 50, "%+v", r)
		expect.Equal(t, r.Received, r.Sent, "received")
	}
	b := answer.Busy{Requests: 1, Bytes: 2, Watches: 3}
	expect.Equal(t, fmt.Sprint(figure(&b, ""), figure(&b, "bytes"), figure(&b, "watches")), "1 2 3")
}

// A scan keeps only the first contenders of a crowd, but every answer counts all of them.
func TestAnswersCountTheWholeCrowd(t *testing.T) {
	crowd, few := queue("/app/crowd", "x", "y"), queue("/app/few", "x", "y", "z")
	crowd.Total = 5000
	v := viewOf(&told{})
	v.o.Now = time.Now
	v.look = look.With(v.source, &look.Scan{Locks: []recipe.Queue{*few, *crowd}})
	list := must.Get(v.listLocks(t.Context(), &ask.Query{Values: url.Values{"sort": {"waiters"}}}))(t).(lockList)
	expect.Equal(t, fmt.Sprint(list.Locks[0].Path, list.Locks[0].WaiterCount, list.Locks[1].WaiterCount),
		"/app/crowd4999 2")
	expect.Equal(t, must.Get(v.overview(t.Context(), &ask.Query{}))(t).(overviewAnswer).Waiters, 5001)
	for prefix, want := range map[string]string{"": "5001 too many: 5,001 waits, the first 3 shown",
		"/app/few": "2 ", "/app/crowd": "4999 too many: 4,999 waits, the first 1 shown"} {
		g := must.Get(v.waitGraph(t.Context(), &ask.Query{Values: url.Values{"prefix": {prefix}}}))(t).(graphAnswer)
		expect.Equal(t, fmt.Sprint(g.EdgeCount, " ", g.Truncated), want, "waits below %q", prefix)
	}
}

// An answer with the first of many suspected deadlocks says how many there are.
func TestAnswersCountAllDeadlocks(t *testing.T) {
	var list []recipe.Queue
	for i := range 2 * (maxCycles + 20) {
		task := func(n int) string { return fmt.Sprintf(`{"v":1,"task":"t%d"}`, n) }
		list = append(list, *queue(fmt.Sprint("/app/", i), task(i), task(i^1)))
	}
	g := viewOf(&told{}).graphAnswer(waits.Graph(list), 0)
	expect.Equal(t, len(g.Suspected), maxCycles, "suspected deadlocks in the answer")
	expect.Equal(t, g.Truncated, "too many: 120 suspected deadlocks, the first 100 shown")
}

// TestMetricsOfACrowd: of a long queue, each scan keeps a different number of contenders. The metrics still
// count all waiters. If a scan is older than one that was counted before, it changes nothing.
func TestMetricsOfACrowd(t *testing.T) {
	q := queue("/app/a", "x", "y", "z")
	q.Total, q.Next = 5000, 5000
	at := time.Now()
	first := &look.Scan{At: at, Locks: []recipe.Queue{*q}}
	fewer := *q
	fewer.Waiters = q.Waiters[:1]
	second := &look.Scan{At: at.Add(1), Locks: []recipe.Queue{fewer}}
	fewer.Total, fewer.Next = 5000, 5003 // three waiters came, and three have gone
	third := &look.Scan{At: at.Add(2), Locks: []recipe.Queue{fewer}}
	var m meter
	for i, want := range []struct {
		s       *look.Scan
		waiters int
		grants  int64
	}{{first, 4999, 0}, {second, 4999, 0}, {third, 4999, 3}, {second, 4999, 3}, {third, 4999, 3}} {
		m.look(want.s)
		sum := m.sums["/app"]
		expect.Equal(t, sum.waiters, want.waiters, "look %d: waiters", i)
		expect.Equal(t, sum.grants, want.grants, "look %d: grants", i)
	}
}

// A prefix without a lock is dropped if a prefix with a lock needs its place.
func TestPrefixesWithoutALockAreForgotten(t *testing.T) {
	var m meter
	at := time.Unix(1000, 0)
	next := int32(1)
	look := func(paths ...string) {
		at = at.Add(time.Second)
		s := &look.Scan{At: at}
		for _, p := range paths {
			s.Locks = append(s.Locks, recipe.Queue{Lock: recipe.Lock{Path: p, Kind: recipe.KindLock, Next: next, Total: 1},
				Holders: []recipe.Entry{{Token: int64(next)}}})
			next++
		}
		m.look(s)
	}
	grants := func() (sum int64) {
		for _, s := range m.sums {
			sum += s.grants
		}
		return sum
	}
	var made []string
	for i := range maxPrefixes {
		made = append(made, fmt.Sprintf("/z%02d/l", i))
	}
	look(made...)
	look(made...)
	before := grants()
	must.Equal(t, len(m.sums), maxPrefixes, "prefixes")
	look(append([]string{"/payments/l"}, made[1:]...)...)
	expect.Equal(t, m.sums["/payments"] != nil && m.sums["/payments"].held == 1, true,
		"the new prefix has its own figures")
	expect.Equal(t, m.sums["/z00"] == nil, true, "the prefix without a lock is forgotten")
	expect.That(t, grants() >= before, "%d grants, before %d", grants(), before)
	look(append([]string{"/payments/l", "/orders/l"}, made[1:]...)...)
	expect.Equal(t, m.sums["/orders"] == nil, true, "a prefix that comes while all places are taken has none")
	look("/payments/l", "/orders/l")
	expect.Equal(t, m.sums["/orders"] != nil, true, "it has one once a place is free")
	expect.That(t, len(m.sums) <= maxPrefixes+1, "%d prefixes", len(m.sums))
}

// viewOf returns a view of a source, without goroutines in the background.
func viewOf(s Source) *View {
	l := look.New(s, false)
	return &View{source: s, look: l, actor: act.New(s, l, nil, nil, nil)}
}
