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
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Every failed login is counted. At most one in a second is logged, with its user, address and page, but
// without the password.
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
		expect.Equal(t, try(c.authorization), c.code, "%q", c.authorization)
		expect.Equal(t, a.loginsFailed.Load(), c.failed, "failed logins after %q", c.authorization)
		expect.Equal(t, strings.Count(log.String(), "login failed"), c.lines, "lines of the log after %q", c.authorization)
	}
	for _, part := range []string{"super", "192.0.2.1", "/act"} {
		expect.Has(t, log.String(), part)
	}
	expect.That(t, !strings.Contains(log.String(), "guess"), "the log has a password: %s", log.String())
}

// The server counts at least as many bytes for an entry of a list as the entry takes in an answer. So an
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
		list := []report.SessionPaths{{Session: math.MinInt64, Paths: []string{string(path)}}}
		for name, n := range map[string]int{
			"by session": length(jsonSessionPaths(list)),
			"by path": length(jsonWatchesByPath(&report.Status{WatchList: list})) - len(
				"path_to_session_ids"),
		} {
			must.That(t, n <= report.ListedPath(string(path))+report.ListedPath(""),
				"%s: %q takes %d bytes, not %d", name, path, n, report.ListedPath(string(path)))
		}
	}
	c := report.Conn{Addr: strings.Repeat("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%eth0]:65535", 2),
		LastOp: strings.Repeat("X", 20), Interest: 5, Timeout: math.MaxInt64, Session: math.MinInt64,
		Queued: math.MinInt64, Received: math.MinInt64, Sent: math.MinInt64,
		Established: time.UnixMilli(math.MaxInt64 / 2),
		LastCxid:    math.MinInt64, LastZxid: math.MinInt64, LastReply: math.MaxInt64, LastLatency: math.MinInt64,
		Latency: metrics.Latency{Min: math.MinInt64, Avg: -math.MaxInt64, Max: math.MinInt64}}
	if n := length(jsonConnection(&c)); n > report.ListedConn {
		t.Errorf("a connection takes %d bytes", n)
	}
	s := &report.Status{SessionList: []report.Session{{ID: math.MinInt64, Expires: time.Now()}}}
	if n := length(jsonDump(s)) - len(
		"expiry_time_to_session_ids session_id_to_ephemeral_paths"); n > report.ListedSession {
		t.Errorf("a session takes %d bytes", n)
	}
}

// A list ends where the answer has no more room, and the answer says so.
func TestListsEndWhereThereIsNoRoom(t *testing.T) {
	path := "/" + strings.Repeat(`"`, 60_000)
	s := &report.Status{Node: status.Node{Serving: true}, Mode: report.Leader}
	l := report.SessionPaths{Session: 1}
	for s.Fits("watches", 1_000_000, report.ListedPath(path)) {
		l.Paths = append(l.Paths, path)
	}
	s.WatchList = []report.SessionPaths{l}
	a := must.Get(New(Options{Source: &fake{status: *s}, Whitelist: "*"}))(t)
	const said = "too many: 1000000 watches, of which only some are shown"
	var b bytes.Buffer
	must.OK(t, writeJSON(&b, a.runCommand(a.byName["watches"], "watches", 0, nil)))
	text := b.String()
	expect.That(t, len(text) <= 50_000_000, "the answer has %d bytes, want at most 50 MB", len(text))
	expect.That(t, len(text) >= 40_000_000, "the answer has %d bytes, want at least 40 MB", len(text))
	expect.That(t, strings.Contains(text, `"truncated" : "`+said+`"`), "the answer does not say so at its end %q",
		text[max(0, len(text)-200):])
	b.Reset()
	expect.OK(t, a.Answer(&b, [4]byte([]byte("wchc"))))
	end := b.String()[max(0, b.Len()-200):]
	expect.That(t, strings.HasSuffix(end, "\n"+said+"\n"), "wchc ends with %q", end)
}
