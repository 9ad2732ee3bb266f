package view_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// The type still is a server that holds a tree and does nothing else.
type still struct {
	view.Source
	st    *state.State
	zxid  int64
	views int
	after func(views int) // runs after each hold of the state lock
}

func (s *still) View(f func(*state.State)) bool {
	f(s.st)
	if s.views++; s.after != nil {
		s.after(s.views)
	}
	return true
}

func (s *still) Watching(int64, string) (watching, known bool) { return false, false }
func (s *still) Watchers(string, int) []int64                  { return nil }
func (s *still) WatchCount(int64) int                          { return 0 }
func (s *still) WatchScan(func(string, int64) bool)            {}
func (s *still) EndedNews() <-chan struct{}                    { return nil }
func (s *still) EndedSince(int64) []observe.EndedSession       { return nil }
func (s *still) Conns() []report.Conn                          { return nil }
func (s *still) Status(report.Need) *report.Status {
	return &report.Status{Nodes: s.st.Tree().Count(), EphemeralCount: s.st.Tree().EphemeralCount()}
}

func (s *still) create(tb testing.TB, session int64, path, data string, flags int32) {
	s.zxid++
	body := jute.AppendString(jute.AppendString(nil, path), data)
	body = jute.AppendInt(jute.AppendACL(body, jute.WorldAnyone), flags)
	c := tree.Change{Zxid: s.zxid, Time: s.zxid, Session: session}
	_, code, _ := s.st.Tree().Apply(&c, jute.OpCreate, body, nil)
	must.Equal(tb, code, jute.OK, "create %.80q", path)
}

// The type serving is a server that serves clients.
type serving struct{ *still }

func (s serving) Status(n report.Need) *report.Status {
	st := s.still.Status(n)
	st.Serving = true
	return st
}

// A server that was removed or has no leader marks its answers as stale, because its state may be old.
func TestAnswersOfAServerThatDoesNotServeSaySo(t *testing.T) {
	s := &still{st: state.New("cut off")}
	s.create(t, 1, "/lock", "", 0)
	for name, source := range map[string]view.Source{"serves": serving{s}, "does not serve": s} {
		t.Run(name, func(t *testing.T) {
			v := view.New(view.Options{Source: source})
			defer v.Close()
			for _, page := range []string{"/locks", "/locks/{name...}", "/wait-graph", "/sessions",
				"/tree/{name...}"} {
				r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil)
				r.SetPathValue("name", "lock")
				w := httptest.NewRecorder()
				v.Pages()[page].ServeHTTP(w, r)
				must.Equal(t, w.Code, http.StatusOK, "%s: %s", page, w.Body)
				expect.Equal(t, w.Header().Get(answer.Stale) != "", source == view.Source(s),
					"whether %s is said to be old", page)
			}
		})
	}
}

// If children are removed while the list is read, the server may read another child twice. It lists that
// child once.
func TestAChildIsListedOnce(t *testing.T) {
	s := &still{st: state.New("moving")}
	s.create(t, 1, "/d", "", 0)
	for i := range 3000 {
		s.create(t, 1, fmt.Sprintf("/d/b%04d", i), "", 0)
	}
	s.create(t, 1, "/d/a", "", 0)
	v := view.New(view.Options{Source: s})
	defer v.Close()
	s.views, s.after = 0, func(views int) {
		if views == 2 { // the newest were read: remove an older child, and the last one takes its place
			body := jute.AppendInt(jute.AppendString(nil, "/d/b0000"), -1)
			_, code, _ := s.st.Tree().Apply(&tree.Change{Zxid: 9999, Session: 1}, jute.OpDelete, body, nil)
			expect.Equal(t, code, jute.OK)
		}
	}
	mux, w := http.NewServeMux(), httptest.NewRecorder()
	for pattern, h := range v.Pages() {
		mux.Handle(pattern, h)
	}
	mux.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/tree/d?limit=3", nil))
	var o object
	must.OK(t, json.Unmarshal(w.Body.Bytes(), &o))
	var names []string
	for _, c := range o.list("children") {
		names = append(names, c["name"].(string))
	}
	expect.List(t, names, []string{"a", "b0001", "b0002"})
}

// TestAMillionChildren: even for a directory with very many nodes, a lock or not, answers are short, have the
// number of nodes, and take little memory.
func TestAMillionChildren(t *testing.T) {
	n, sessions := 1_000_000, int64(4)
	if testing.Short() {
		n = 50_000
	}
	s := &still{st: state.New("many")}
	s.create(t, 1, "/crowd", "", 0)
	s.create(t, 1, "/plain", "", 0)
	for i := range n {
		s.create(t, 1+int64(i)%sessions, "/crowd/lock-", `{"v":1,"host":"web","pid":7}`,
			jute.FlagEphemeralSequential)
		s.create(t, 1, fmt.Sprintf("/plain/child-%07d", i), "x", 0)
	}
	v := view.New(view.Options{Source: s})
	defer v.Close()
	mux := http.NewServeMux()
	for pattern, h := range v.Pages() {
		mux.Handle(pattern, h)
	}
	count := "1,000,000"
	if testing.Short() {
		count = "50,000"
	}
	ask := func(path string) object {
		t.Helper()
		r := httptest.NewRequest("GET", "http://localhost"+path, nil)
		var w *httptest.ResponseRecorder
		var before, after runtime.MemStats
		for range 10 { // try again: on a busy machine an answer may take too long
			w = httptest.NewRecorder()
			runtime.ReadMemStats(&before)
			if mux.ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable {
				break
			}
		}
		runtime.ReadMemStats(&after)
		b := w.Body.Bytes()
		must.Equal(t, w.Code, http.StatusOK, "%s: code", path)
		must.That(t, len(b) <= 2<<20, "%s: %d, %d bytes", path, w.Code, len(b))
		took := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d bytes, %d KiB of memory", path, len(b), took>>10)
		expect.That(t, took <= 32<<20, "%s took %d MiB of memory", path, took>>20)
		if strings.HasPrefix(path, "/?") {
			expect.Has(t, string(b), count, "%s does not say how many there", path)
			return nil
		}
		var o object
		must.OK(t, json.Unmarshal(b, &o))
		return o
	}
	want := func(o object, name string, value any) {
		t.Helper()
		expect.Equal(t, o[name], value, "%s is %v", name, o[name])
	}

	first := "too many: " + count + " contenders, the first 1,000 shown"
	o := ask("/locks/crowd")
	want(o, "total", float64(n))
	want(o, "truncated", first)
	w := o.list("waiters")
	if expect.Equal(t, len(w), 999, "length of %v", w) {
		expect.Equal(t, w[998]["node"], "lock-0000000999", "node")
	}
	o = ask("/locks")
	want(o, "total", 1.0)
	want(o, "ephemerals", float64(n))
	want(o.list("locks")[0], "total", float64(n))
	ask("/wait-graph")

	o = ask("/tree/crowd?limit=1000")
	want(o, "truncated", "too many: "+count+" children, 1,000 shown")
	c := o.list("children")
	if expect.Equal(t, len(c), 1000, "length of %v", c) {
		expect.Equal(t, c[0]["name"], "lock-0000000000", "name")
		expect.Equal(t, c[999]["name"], "lock-0000000999", "name")
	}
	o = ask("/tree/plain?limit=1000&after=child-0000999")
	want(o, "truncated", "too many: "+count+" children, 1,000 shown")
	c = o.list("children")
	if expect.Equal(t, len(c), 1000, "length of %v", c) {
		expect.Equal(t, c[0]["name"], "child-0001000", "name")
	}
	o = ask("/locks/plain")
	want(o, "total", 0.0)
	ask("/?tab=lock&path=/crowd")
	ask("/?tab=tree&path=/plain")
}

// The page has a link from each path and session to its details, and finds sessions by their address. It
// offers to ask for a lock only if the holder's program looks for such requests.
func TestPageLeadsOn(t *testing.T) {
	r := newRig(t)
	c := r.session()
	r.node(c, "/app/one/lock-", `{"v":1,"host":"web"}`, zk.FlagEphemeral|zk.FlagSequence)
	kazoo := r.node(c, "/app/k/0123456789abcdef0123456789abcdef__lock__", "", zk.FlagEphemeral|zk.FlagSequence)
	r.node(c, "/app/c/_c_0123456789ab4cde8123456789abcdef-lock-", "", zk.FlagEphemeral|zk.FlagSequence)
	for query, want := range map[string]struct{ has, lacks []string }{
		"tab=sessions&addr=127.": {[]string{`name="addr" value="127."`, `id=` + sid(c), "1 sessions"}, nil},
		"tab=sessions&addr=10.":  {[]string{"0 sessions"}, []string{`id=` + sid(c)}},
		"tab=sessions&server=9":  {[]string{"0 sessions"}, nil},
		"tab=sessions&server=x":  {[]string{"want a number"}, nil},
		"tab=sessions&here=1":    {[]string{"1 sessions", "checked"}, nil},
		"tab=tree&path=/app/one": {[]string{
			`href="/?tab=tree&amp;path=%2f"`, `href="/?tab=tree&amp;path=%2fapp"`,
			`href="/?tab=tree&amp;path=%2fapp%2fone"`, `href="/?tab=lock&amp;path=%2fapp%2fone"`,
		}, nil},
		"tab=tree&path=/": {[]string{`href="/?tab=tree&amp;path=%2f"`}, []string{`data-key="up-"`}},
		"tab=session&id=" + sid(c): {[]string{`href="/?tab=tree&amp;path=%2fapp%2fone%2flock-0000000000"`},
			nil},
		"tab=lock&path=/app/one": {[]string{`data-act="ask"`, `data-act="break"`,
			`href="/?tab=tree&amp;path=%2fapp%2fone%2flock-0000000000"`}, nil},
		"tab=lock&path=/app/k":           {[]string{`data-act="break"`}, []string{`data-act="ask"`}},
		"tab=lock&path=/app/c":           {[]string{`data-act="break"`}, []string{`data-act="ask"`}},
		"tab=lock&path=" + kazoo + "/no": {[]string{"there is no node"}, nil},
	} {
		a, b := r.request("GET", "/?"+query, nil, "")
		expect.Equal(t, a.StatusCode, 200, "%s: %s", query, a.Status)
		page := string(b)
		page = page[strings.Index(page, "<main"):strings.Index(page, "<script>")]
		for _, s := range want.has {
			expect.Has(t, page, s, "%s: %q is missing in", query, s)
		}
		for _, s := range want.lacks {
			expect.That(t, !strings.Contains(page, s), "%s: %q is there", query, s)
		}
	}
	page := func() string { _, b := r.request("GET", "/", nil, ""); return string(b) }()
	for _, s := range []string{
		"new TextEncoder()", `addEventListener("close", () => { $("act-password").value = "";`} {
		expect.Has(t, page, s, "the script lacks")
	}
}
