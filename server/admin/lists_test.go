package admin

import (
	"bufio"
	"bytes"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A failed login is counted, and logged with its user, its address and its page, once a
// second; the password is not logged.
func TestFailedLoginsAreCountedAndLogged(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1000, 0)
	check := func(user, password string) bool { return user == "super" && password == "päss" }
	a := must.Get(New(Options{
		Source: &fake{}, Authorize: check, Now: func() time.Time { return now },
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Pages: map[string]http.Handler{"/act": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, no := port.Super(check).User(r, ""); no != nil {
				w.WriteHeader(no.Status)
			}
		})},
	}))(t)
	h := a.Handler()
	try := func(authorization string) int {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/act", nil)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for i, c := range []struct {
		authorization string
		code          int
		failed        int64
		lines         int
	}{
		{"", 401, 0, 0}, {"digest super:päss", 200, 0, 0}, {"digest super:guess", 403, 1, 1},
		{"digest super:again", 403, 2, 1}, {"digest none", 403, 3, 2},
	} {
		if i == 4 {
			now = now.Add(time.Second)
		}
		if code := try(c.authorization); code != c.code || a.loginsFailed.Load() != c.failed ||
			strings.Count(log.String(), "login failed") != c.lines {
			t.Errorf("%q: %d, %d failed, log %s", c.authorization, code, a.loginsFailed.Load(), log.String())
		}
	}
	for _, part := range []string{"super", "192.0.2.1", "/act"} {
		expect.Has(t, log.String(), part, "is missing in")
	}
	expect.That(t, !strings.Contains(log.String(), "guess"), "the log has a password: %s", log.String())
}

// TestListsSayWhatTheyTake: no entry of a list is longer in an answer than the size it is counted with, so an
// answer stays below 50 MB.
func TestListsSayWhatTheyTake(t *testing.T) {
	length := func(o object) int {
		var b bytes.Buffer
		j := &jsonWriter{w: bufio.NewWriter(&b), depth: 1}
		j.value(o)
		j.w.Flush()
		return b.Len() - len("{\n  }")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		path := make([]byte, r.IntN(50))
		for i := range path {
			path[i] = byte(r.Uint32())
		}
		list := []SessionPaths{{math.MinInt64, []string{string(path)}}}
		for name, n := range map[string]int{
			"by session": length(jsonSessionPaths(list)),
			"by path": length(jsonWatchesByPath(&Status{WatchList: list})) - len(
				"path_to_session_ids"),
		} {
			must.That(t, n <= ListedPath(string(path))+listedPath,
				"%s: %q takes %d bytes, not %d", name, path, n, ListedPath(string(path)))
		}
	}
	c := Conn{Addr: strings.Repeat("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%eth0]:65535", 2),
		LastOp: strings.Repeat("X", 20), Interest: 5, Timeout: math.MaxInt64, Session: math.MinInt64,
		Queued: math.MinInt64, Received: math.MinInt64, Sent: math.MinInt64,
		Established: time.UnixMilli(math.MaxInt64 / 2),
		LastCxid:    math.MinInt64, LastZxid: math.MinInt64, LastReply: math.MaxInt64, LastLatency: math.MinInt64,
		Latency: metrics.Latency{Min: math.MinInt64, Avg: -math.MaxInt64, Max: math.MinInt64}}
	if n := length(jsonConnection(&c)); n > ListedConn {
		t.Errorf("a connection takes %d bytes", n)
	}
	s := &Status{SessionList: []Session{{ID: math.MinInt64, Expires: time.Now()}}}
	if n := length(jsonDump(s)) - len(
		"expiry_time_to_session_ids session_id_to_ephemeral_paths"); n > ListedSession {
		t.Errorf("a session takes %d bytes", n)
	}
}

// TestListsEndWhereThereIsNoRoom: and the answer says so.
func TestListsEndWhereThereIsNoRoom(t *testing.T) {
	path := "/" + strings.Repeat(`"`, 60_000)
	s := &Status{Node: status.Node{Serving: true}, Mode: Leader}
	l := SessionPaths{Session: 1}
	for s.Fits("watches", 1_000_000, ListedPath(path)) {
		l.Paths = append(l.Paths, path)
	}
	s.WatchList = []SessionPaths{l}
	a := must.Get(New(Options{Source: &fake{status: *s}, Whitelist: "*"}))(t)
	const said = "too many: 1000000 watches, of which only some are shown"
	var b bytes.Buffer
	must.OK(t, writeJSON(&b, a.runCommand(a.byName["watches"], "watches", 0, nil)))
	if text := b.String(); len(text) > 50_000_000 || len(text) < 40_000_000 ||
		!strings.Contains(text, `"truncated" : "`+said+`"`) {
		t.Errorf("%d bytes, ending %q", len(text), text[max(0, len(text)-200):])
	}
	b.Reset()
	if err := a.Answer(&b, [4]byte([]byte("wchc"))); err != nil || !strings.HasSuffix(b.String(), "\n"+said+
		"\n") {
		t.Errorf("%v: %q", err, b.String()[max(0, b.Len()-200):])
	}
}
