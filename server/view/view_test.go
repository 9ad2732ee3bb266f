package view_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

const superDigest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=" // super:test

// rig is a standalone server in memory, with methods that send requests to it.
type rig struct {
	testing.TB
	i    *server.Instance
	base string
}

func newRig(t testing.TB) *rig {
	t.Helper()
	i := must.Get(server.Start(t.Context(), server.Options{
		ClientAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
		SuperDigest: superDigest, MaxFrame: 2 << 20, MaxConnsPerAddr: -1,
	}))(t)
	t.Cleanup(func() { i.Close(context.Background()) })
	must.OK(t, i.Ready(t.Context()))
	return &rig{t, i, "http://" + i.AdminAddr()}
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func (r *rig) session() *zk.Conn {
	r.Helper()
	c, events, err := zk.Connect([]string{r.i.ClientAddr()}, 10*time.Second, zk.WithLogger(quiet{}),
		zk.WithMaxBufferSize(4<<20))
	must.OK(r, err)
	r.Cleanup(c.Close)
	for e := range events {
		if e.State == zk.StateHasSession {
			return c
		}
	}
	r.Fatal("no session")
	return nil
}

func (r *rig) node(c *zk.Conn, path, data string, flags int32) string {
	r.Helper()
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			if _, err := c.Create(path[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil && err != zk.ErrNodeExists {
				r.Fatal(err)
			}
		}
	}
	made, err := c.Create(path, []byte(data), flags, zk.WorldACL(zk.PermAll))
	must.OK(r, err, "create %.80q", path)
	return made
}

// lock() makes a contender of a plain lock.
func (r *rig) lock(c *zk.Conn, path string) string {
	r.Helper()
	return r.node(c, path+"/lock-", "", zk.FlagEphemeral|zk.FlagSequence)
}

// object is an answer.
type object map[string]any

func (o object) list(name string) (list []object) {
	l, _ := o[name].([]any)
	for _, x := range l {
		m, _ := x.(map[string]any)
		list = append(list, m)
	}
	return list
}

// unzipped is a transport that does not ask for zipped answers.
var unzipped = &http.Transport{DisableCompression: true}

func (r *rig) request(method, path string, header map[string]string, body string) (*http.Response, []byte) {
	r.Helper()
	q := must.Get(http.NewRequestWithContext(r.Context(), method, r.base+path, strings.NewReader(body)))(r)
	for k, v := range header {
		if q.Header.Set(k, v); k == "Host" {
			q.Host = v
		}
	}
	a := must.Get(unzipped.RoundTrip(q))(r)
	defer a.Body.Close()
	b := must.Get(io.ReadAll(a.Body))(r)
	return a, b
}

// get() sends a GET request, and checks that the answer is JSON and that its version is 1.
func (r *rig) get(code int, path string) object {
	r.Helper()
	a, b := r.request("GET", path, nil, "")
	var o object
	err := json.Unmarshal(b, &o)
	must.OK(r, err, "%.200s", path)
	must.Equal(r, a.StatusCode, code, "%.200s: status code", path)
	must.Equal(r, a.Header.Get("Content-Type"), "application/json", "%.200s: Content-Type", path)
	must.Equal(r, o["v"], 1.0, "%.200s", path)
	return o
}

// eventually() asks until ok() accepts the answer, because the server may answer from an older scan.
func (r *rig) eventually(path string, ok func(object) bool) object {
	r.Helper()
	var o object
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if o = r.get(200, path); ok(o) {
			return o
		}
	}
	r.Fatalf("%s stays %v", path, o)
	return nil
}

func sid(c *zk.Conn) string { return fmt.Sprintf("0x%x", c.SessionID()) }

func TestLocks(t *testing.T) {
	r := newRig(t)
	a, b := r.session(), r.session()
	r.lock(a, "/app/orders")
	r.lock(b, "/app/orders")
	r.lock(b, "/app/stock")
	r.node(a, "/other/x-R-", `{"v":1,"host":"web-7","pid":12,"reason":"nightly"}`,
		zk.FlagEphemeral|zk.FlagSequence)
	o := r.eventually("/locks", func(o object) bool { return o["total"] == 3.0 })
	l := o.list("locks")[0]
	expect.Equal(t, l["path"], "/app/orders", "path")
	expect.Equal(t, l["kind"], "lock", "kind")
	expect.Equal(t, l["holderCount"], 1.0, "holderCount")
	expect.Equal(t, l["waiterCount"], 1.0, "waiterCount")
	expect.Equal(t, l["holders"].([]any)[0].(map[string]any)["session"], any(sid(a)), "session")
	for query, want := range map[string]string{
		"prefix=/app":                        "/app/orders /app/stock",
		"prefix=/app/":                       "/app/orders /app/stock",
		"prefix=/ap":                         "",
		"prefix=/app/orders":                 "/app/orders",
		"kind=rwlock":                        "/other",
		"waiting":                            "/app/orders",
		"holder=" + sid(b):                   "/app/stock",
		"holder=WEB-7":                       "/other",
		"holder=night":                       "/other",
		"older=1h":                           "",
		"limit=1":                            "/app/orders",
		"limit=1&offset=1":                   "/app/stock",
		"offset=9":                           "",
		"sort=waiters&limit=1":               "/app/orders",
		"sort=wait&prefix=/app&offset=0":     "/app/orders /app/stock",
		"sort=hold&limit=1&prefix=/app/orde": "",
	} {
		var got []string
		for _, l := range r.get(200, "/locks?"+query).list("locks") {
			got = append(got, l["path"].(string))
		}
		expect.Equal(t, strings.Join(got, " "), want, "%s: %v", query, got)
	}
	for query, want := range map[string]string{
		"prefix=app": "begins with a slash", "kind=x": "want one of lock, rwlock", "older=soon": "such as 30s",
		"limit=0":    "from 1 to 1000",
		"limit=1001": "from 1 to 1000", "offset=-1": "want a number", "sort=up": "want path",
		"prefx=/a": "known are prefix", "waiting=maybe": "true or false",
	} {
		expect.Has(t, r.get(400, "/locks?"+query)["error"].(string), want, "%s", query)
	}
	one := r.get(200, "/locks/app/orders")
	w := one.list("waiters")
	if expect.Equal(t, len(w), 1, "length of %v", w) {
		expect.Equal(t, w[0]["session"], any(sid(b)), "session")
		expect.Equal(t, w[0]["position"], 1.0, "position")
		expect.Equal(t, w[0]["blockedBy"].([]any)[0], one.list("holders")[0]["node"], "blockedBy")
	}
	q := r.get(200, "/locks/app")
	expect.Equal(t, q["kind"], "unknown", "kind")
	expect.Equal(t, q["total"], 0.0, "total")
	r.get(404, "/locks/no/such")
	r.get(404, "/tree/no/such")
	r.get(404, "/sessions/0x1234")
	r.get(404, "/sessions/nonsense")
}

func TestAnswersAreSmallForThosePolling(t *testing.T) {
	r := newRig(t)
	c := r.session()
	for i := range 40 {
		r.lock(c, fmt.Sprintf("/l/%02d", i))
	}
	r.eventually("/locks", func(o object) bool { return o["total"] == 40.0 })
	a, b := r.request("GET", "/locks", map[string]string{"Accept-Encoding": "gzip"}, "")
	z, err := gzip.NewReader(strings.NewReader(string(b)))
	must.OK(t, err)
	must.Equal(t, a.Header.Get("Content-Encoding"), "gzip", "Content-Encoding")
	plain, err := io.ReadAll(z)
	expect.OK(t, err)
	expect.That(t, len(plain) >= 4*len(b), "%v: %d bytes became %d", err, len(plain), len(b))
	a, b = r.request("GET", "/locks", map[string]string{"If-None-Match": a.Header.Get("ETag")}, "")
	expect.Equal(t, a.StatusCode, 304, "status code")
	expect.Equal(t, len(b), 0, "bytes in %.200q", b)
	a, b = r.request("HEAD", "/locks", nil, "")
	expect.Equal(t, a.StatusCode, 200, "HEAD: status code")
	expect.Equal(t, len(b), 0, "HEAD: bytes in %.200q", b)
	a, _ = r.request("POST", "/locks", nil, "")
	expect.Equal(t, a.StatusCode, 405, "POST: %s", a.Status)
}

func TestStrangeHostsAreRefused(t *testing.T) {
	r := newRig(t)
	for host, code := range map[string]int{"evil.example": 421, "evil.example:8080": 421, "localhost:1": 200,
		"127.0.0.1": 200, "[::1]:8080": 200} {
		for _, path := range []string{"/locks", "/", "/overview"} {
			a, b := r.request("GET", path, map[string]string{"Host": host}, "")
			expect.Equal(t, a.StatusCode, code, "%s %s: %s %.200s", host, path, a.Status, b)
		}
	}
}

func TestDeadlock(t *testing.T) {
	r := newRig(t)
	a, b := r.session(), r.session()
	r.lock(a, "/app/x")
	r.lock(b, "/app/y")
	r.lock(b, "/app/x")
	if o := r.eventually("/wait-graph", func(o object) bool { return o["edgeCount"] == 1.0 }); len(
		o.list("suspected")) != 0 {
		t.Errorf("%v", o)
	}
	mine := r.lock(a, "/app/y")
	o := r.eventually("/wait-graph", func(o object) bool { return len(o.list("suspected")) == 1 })
	s := o.list("suspected")[0]
	if expect.Equal(t, len(s["parties"].([]any)), 2, "number of parties") {
		expect.Equal(t, len(s["paths"].([]any)), 2, "number of paths")
	}
	o = r.get(200, "/wait-graph?prefix=/app/x")
	expect.Equal(t, o["edgeCount"], 1.0, "edgeCount")
	expect.Equal(t, len(o.list("suspected")), 0, "number of suspected")
	expect.Equal(t, r.get(200, "/overview")["suspectedDeadlocks"], 1.0)
	must.OK(t, a.Delete(mine, -1))
	r.eventually("/wait-graph", func(o object) bool { return len(o.list("suspected")) == 0 })
}

// The overview shows how many packets clients exchange per second, over the last minute or since the start.
func TestOverviewRates(t *testing.T) {
	r := newRig(t)
	s := r.session()
	for range 200 {
		must.Get2(s.Exists("/"))(t)
	}
	rates := r.eventually("/overview", func(o object) bool { return o["rates"] != nil })["rates"].(map[string]any)
	over, received, sent := rates["seconds"].(float64), rates["received"].(float64), rates["sent"].(float64)
	expect.That(t, over >= 1, "the rates are over %v s", over)
	expect.That(t, received*over >= 150, "%v packets were received, want 150", received*over)
	expect.That(t, sent*over >= 150, "%v packets were sent, want 150", sent*over)
	if _, page := r.request("GET", "/", nil, ""); !strings.Contains(string(page), "packets a second received") {
		t.Error("the page does not say so")
	}
}

func TestSessions(t *testing.T) {
	r := newRig(t)
	a, b := r.session(), r.session()
	r.lock(a, "/l")
	r.lock(b, "/l")
	o := r.get(200, "/sessions")
	expect.Equal(t, o["total"], 2.0, "total")
	expect.Equal(t, o.list("sessions")[0]["id"], any(sid(a)))
	expect.Equal(t, o.list("sessions")[0]["nodes"], 1.0, "nodes")
	expect.Equal(t, o.list("sessions")[0]["connected"], true, "connected")
	for query, n := range map[string]int{"limit=1": 1, "addr=127.": 2, "addr=10.": 0, "server=1": 2, "server=2": 0, "here": 2} {
		expect.Equal(t, len(r.get(200, "/sessions?"+query).list("sessions")), n, "%s", query)
	}
	r.get(400, "/sessions?server=x")
	o = r.eventually("/sessions/"+sid(b), func(o object) bool { return len(o.list("waitsFor")) == 1 })
	expect.Equal(t, o["addr"], "127.0.0.1", "addr")
	expect.Equal(t, o.list("waitsFor")[0]["path"], "/l", "path")
	expect.Equal(t, len(o.list("holds")), 0, "number of holds")
	r.get(200, fmt.Sprintf("/sessions/%d", b.SessionID()))

	id := sid(a)
	a.Close()
	o = r.eventually("/sessions/ended", func(o object) bool {
		l := o.list("sessions")
		return len(l) == 1
	})
	e := o.list("sessions")[0]
	expect.Equal(t, e["id"], any(id), "the ended session")
	expect.Equal(t, e["cause"], any("closed"), "cause")
	expect.Equal(t, e["nodes"], any(1.0), "nodes")
	expect.Has(t, fmt.Sprint(e["paths"]), "[/l/", "its first paths")
	expect.Has(t, r.get(404, "/sessions/"+id)["error"].(string), "ended ")
	r.get(400, "/sessions/ended?cause=x")
	expect.Equal(t, r.get(200, "/sessions/ended?cause=expired")["total"], 0.0)
}

func TestTop(t *testing.T) {
	r := newRig(t)
	c := r.session()
	r.node(c, "/busy", "", 0)
	const asked = 20
	for range asked {
		_, _, _, err := c.GetW("/busy")
		must.OK(t, err)
	}
	o := r.get(200, "/top")
	for _, withdrawn := range []string{"sessions", "paths"} {
		expect.Equal(t, o[withdrawn], nil, "%s of /top", withdrawn)
	}
	w := o.list("watched")
	if expect.Equal(t, len(w), 1, "length of %v", w) {
		expect.Equal(t, w[0]["name"], "/busy", "name")
	}
	cl := o.list("clients")
	must.Equal(t, len(cl), 1, "clients")
	expect.Equal(t, cl[0]["name"], any("127.0.0.1"), "the client")
	expect.That(t, cl[0]["requests"].(float64) >= asked, "%v requests, want %d or more", cl[0]["requests"], asked)
	r.get(400, "/top?by=size")
}

func TestTree(t *testing.T) {
	r := newRig(t)
	c := r.session()
	r.node(c, "/t/text", "héllo", 0)
	r.node(c, "/t/bin", "\x00\xff", 0)
	must.Get(c.Create("/t/secret", []byte("s3cret"), 0, zk.DigestACL(zk.PermAll, "a", "b")))(t)
	o := r.get(200, "/tree/t")
	l := o.list("children")
	if expect.Equal(t, len(l), 3, "length of %v", l) {
		expect.Equal(t, l[0]["name"], "bin", "name")
		expect.Equal(t, l[2]["dataLength"], 6.0, "dataLength")
	}
	if o := r.get(200, "/tree/t/text"); o["text"] != nil {
		t.Errorf("data without being asked for: %v", o)
	}
	expect.Equal(t, r.get(200, "/tree/t/text?data")["text"], "héllo")
	o = r.get(200, "/tree/t/bin?data")
	expect.Equal(t, o["base64"], "AP8=", "base64")
	expect.That(t, o["text"] == nil, "%v", o)
	o = r.get(200, "/tree/t/secret?data")
	expect.That(t, o["text"] == nil, "%v", o)
	expect.That(t, o["base64"] == nil, "%v", o)
	expect.Equal(t, o["dataNote"], "world:anyone may not read it", "dataNote")
	for i := range 30 {
		r.node(c, fmt.Sprintf("/many/%02d", 29-i), "", 0)
	}
	o = r.get(200, "/tree/many?limit=7&after=05")
	l = o.list("children")
	if expect.Equal(t, len(l), 7, "length of %v", l) {
		expect.Equal(t, l[0]["name"], "06", "name")
		expect.Equal(t, l[6]["name"], "12", "name")
		expect.Equal(t, o["more"], true, "more")
	}
	o = r.get(200, "/tree/many?limit=7&after=25")
	if expect.Equal(t, len(o.list("children")), 4, "number of children") {
		expect.That(t, o["more"] != true, "%v", o)
	}
	r.get(200, "/tree/")
	r.get(400, "/tree/t?limit=x")
}

// TestBadInput: whatever names and data nodes have, every answer is JSON and not too long, and its links lead
// to the nodes.
func TestBadInput(t *testing.T) {
	r := newRig(t)
	c := r.session()
	names := []string{
		"<script>alert(1)</script>", `"quoted" 'and' \more`, "right\u202eto\u2066left", "bro\xffken\xfe", "a?b#c%2f", "..%00", "line\u2028two", strings.Repeat("n", 100_000), " ",
	}
	for i, n := range names {
		dir := "/bad/" + n
		if strings.Contains(n, "/") {
			dir = "/bad/" + strings.ReplaceAll(n, "/", "∕")
		}
		_, err := c.Create("/bad", nil, 0, zk.WorldACL(zk.PermAll))
		must.That(t, err == nil || err == zk.ErrNodeExists, "%v", err)
		if _, err := c.Create(dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			dir = fmt.Sprintf("/bad/%d", i) // no node can have this name, so use it as data
			r.node(c, dir+"/lock-", n, zk.FlagEphemeral|zk.FlagSequence)
			r.get(200, "/locks"+dir)
			continue
		}
		if _, err := c.Create(dir+"/"+strings.ReplaceAll(n, "/", "∕")+"-lock-", []byte(n), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		one := r.get(200, "/locks/bad/"+url.PathEscape(dir[5:]))
		expect.Equal(t, len(one.list("holders")), 1, "%.60q: %v", dir, one)
		r.get(200, "/tree/bad/"+url.PathEscape(dir[5:])+"?data")
	}
	deep := strings.Repeat("/d", 150)
	r.lock(c, deep)
	r.node(c, "/big/lock-", strings.Repeat("x", 1<<20-100), zk.FlagEphemeral|zk.FlagSequence)
	r.lock(c, "/two")
	r.node(c, "/two/f65a711639a74cab9e5222dd97208501__lock__", "", zk.FlagEphemeral|zk.FlagSequence)
	o := r.get(200, "/locks/two")
	expect.Equal(t, o["mixed"], true, "mixed")
	expect.Equal(t, o["holderCount"], 2.0, "holderCount")
	expect.Equal(t, len(r.get(200, "/tree/big?data").list("children")), 1)
	o = r.eventually("/locks", func(o object) bool { return o["total"].(float64) >= 9 })
	found := map[string]bool{}
	for _, l := range o.list("locks") {
		found[l["path"].(string)] = true
		if h := l["href"].(string); h != "" {
			r.get(200, h)
		}
	}
	for _, path := range []string{deep, "/big", "/bad/<script>alert(1)<∕script>"} {
		expect.That(t, found[path], "no %s in %.2000v", path, found)
	}
	a, b := r.request("GET", "/locks", nil, "")
	expect.Equal(t, a.StatusCode, 200, "status code")
	expect.That(t, len(b) <= 200_000, "%d bytes", len(b))
	expect.Lacks(t, string(b), "<script")
}

// TestManyContenders: a directory with more contenders than are shown.
func TestManyContenders(t *testing.T) {
	r := newRig(t)
	c := r.session()
	r.node(c, "/crowd", "", 0)
	const n = 3000
	ops := make([]any, 0, 500)
	for i := range n {
		ops = append(ops, &zk.CreateRequest{Path: "/crowd/lock-", Flags: zk.FlagEphemeral | zk.FlagSequence, Acl: zk.WorldACL(zk.PermAll)})
		if len(ops) == cap(ops) || i == n-1 {
			must.Get(c.Multi(ops...))(t)
			ops = ops[:0]
		}
	}
	o := r.get(200, "/locks/crowd")
	expect.Equal(t, o["total"], any(float64(n)), "total")
	expect.Equal(t, o["truncated"], "too many: 3,000 contenders, the first 1,000 shown", "truncated")
	expect.Equal(t, len(o.list("waiters")), 999, "number of waiters")
	o = r.get(200, "/tree/crowd?limit=1000&after=lock-0000001999")
	if expect.Equal(t, len(o.list("children")), 1000, "number of children") {
		expect.Equal(t, o.list("children")[0]["name"], "lock-0000002000", "name")
	}
}

// TestPage: the page is complete without a script. Names cannot add HTML to it, and its policy allows only
// its own script and style.
func TestPage(t *testing.T) {
	r := newRig(t)
	a, b := r.session(), r.session()
	r.node(a, "/x/<img src=x onerror=alert(1)>lock-", `"><script>alert(2)</script>`, zk.FlagEphemeral|zk.FlagSequence)
	r.lock(a, "/app/one")
	r.lock(b, "/app/one")
	r.lock(b, "/app/two")
	r.lock(a, "/app/two")
	r.eventually("/locks", func(o object) bool { return o["total"] == 3.0 })
	for path, want := range map[string][]string{
		"/":                           {"Overview", "suspected deadlock", "standalone", "Longest waits"},
		"/?tab=clients":               {"Busiest clients"},
		"/?tab=locks":                 {"/app/one", "sequential nodes", "3 locks"},
		"/?tab=locks&kind=rwlock":     {"no locks"},
		"/?tab=locks&prefix=x":        {"begins with a slash"},
		"/?tab=lock&path=/app/one":    {"1 hold, 1 wait", sid(a), "holds"},
		"/?tab=lock&path=/x":          {"&lt;img src=x onerror=alert(1)&gt;lock-0000000000", "&lt;script&gt;alert(2)"},
		"/?tab=lock&path=/none":       {"there is no node /none"},
		"/?tab=graph":                 {"<svg", "in a cycle", "Suspected deadlock"},
		"/?tab=sessions":              {sid(a), sid(b), "127.0.0.1"},
		"/?tab=session&id=" + sid(a):  {"/app/one", "/app/two", "10000 ms"},
		"/?tab=session&id=0x1":        {"there is no session 0x1"},
		"/?tab=ended":                 {"in memory only"},
		"/?tab=tree&path=/app&data=1": {"one", "two"},
		"/?tab=nonsense":              {"Overview"},
	} {
		a, b := r.request("GET", path, nil, "")
		expect.Equal(t, a.StatusCode, 200, "%s: status code", path)
		expect.That(t, strings.HasPrefix(a.Header.Get("Content-Type"), "text/html"), "%s: %s", path, a.Status)
		for _, w := range want {
			expect.Has(t, string(b), w, "%s: %q is missing", path, w)
		}
		n := strings.Count(string(b), "<script")
		expect.Equal(t, n, 1, "%s", path)
		expect.Lacks(t, string(b), "<img", "%s", path)
		expect.Lacks(t, string(b), " style=", "%s", path)
		expect.Lacks(t, string(b), " onclick=", "%s", path)
		p := a.Header.Get("Content-Security-Policy")
		for _, w := range []string{"default-src 'none'; script-src 'sha256-", "style-src 'sha256-", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			expect.Has(t, p, w, "%s: the policy %q lacks", path, p)
		}
		expect.That(t, !strings.Contains(p, "unsafe"), "%s: %s", path, p)
		for name, want := range map[string]string{"X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control": "no-cache", "Vary": "Accept-Encoding"} {
			expect.Equal(t, a.Header.Get(name), want, "%s: %s", path, name)
		}
	}
	// If nothing has changed, a page that polls gets a short answer.
	x, _ := r.request("GET", "/?tab=locks", nil, "")
	y, body := r.request("GET", "/?tab=locks", map[string]string{"If-None-Match": x.Header.Get("ETag")}, "")
	expect.Equal(t, y.StatusCode, 304, "status code")
	expect.Equal(t, len(body), 0, "bytes in %.200q", body)
	if a, _ := r.request("POST", "/", nil, ""); a.StatusCode != 405 {
		t.Errorf("POST: %s", a.Status)
	}
}

// A list that does not fit has a link to the next page, which shows the rest.
func TestPagesOfALongList(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.session().Close()
	}
	r.eventually("/sessions/ended", func(o object) bool { return len(o.list("sessions")) == 3 })
	c := r.session()
	for i := range 3 {
		r.lock(c, fmt.Sprintf("/l/%d", i))
		r.session()
	}
	r.eventually("/locks", func(o object) bool { return o["total"] == 3.0 })
	for _, tab := range []string{"locks", "sessions", "ended"} {
		_, b := r.request("GET", "/?limit=2&tab="+tab, nil, "")
		want := fmt.Sprintf(`href="/?limit=2&amp;offset=2&amp;tab=%s">Next page`, tab)
		expect.Has(t, string(b), want, "%s: no link to the next page", tab)
		if _, b = r.request("GET", "/?limit=2&offset=2&tab="+tab, nil, ""); tab != "sessions" && strings.Contains(string(b), "Next page") {
			t.Errorf("%s: there is a third page", tab)
		}
		_, b = r.request("GET", "/?limit=x&tab="+tab, nil, "")
		expect.Has(t, string(b), "limit=x", "%s: a limit that is none is not told", tab)
	}
}

// BenchmarkPage is one poll of a page.
func BenchmarkPage(b *testing.B) {
	r := newRig(b)
	c := r.session()
	for i := range 100 {
		r.lock(c, fmt.Sprintf("/l/%03d", i))
	}
	for _, path := range []string{"/", "/?tab=locks", "/?tab=graph", "/locks", "/wait-graph"} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				r.request("GET", path, map[string]string{"Accept-Encoding": "gzip"}, "")
			}
		})
	}
}
