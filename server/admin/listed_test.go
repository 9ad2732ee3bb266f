package admin

import (
	"bufio"
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/must"
)

// TestListsSayWhatTheyTake: no entry of a list is longer in an answer than what
// it is counted with, so that an answer stays below 50 MB.
func TestListsSayWhatTheyTake(t *testing.T) {
	length := func(f func(j *jsonWriter)) int {
		var b bytes.Buffer
		j := &jsonWriter{w: bufio.NewWriter(&b), depth: 2}
		f(j)
		j.w.Flush()
		return b.Len()
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		path := make([]byte, r.IntN(50))
		for i := range path {
			path[i] = byte(r.Uint32())
		}
		list := []SessionPaths{{math.MinInt64, []string{string(path)}}}
		for name, n := range map[string]int{
			"by session": length(func(j *jsonWriter) { jsonSessionPaths(j, list) }),
			"by path": length(func(j *jsonWriter) { jsonWatchesByPath(j, &Status{WatchList: list}) }) - len(
				"path_to_session_ids"),
		} {
			if n > ListedPath(string(path))+listedPath {
				t.Fatalf("%s: %q takes %d bytes, not %d", name, path, n, ListedPath(string(path)))
			}
		}
	}
	c := Conn{Addr: strings.Repeat("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%eth0]:65535", 2),
		LastOp: strings.Repeat("X", 20), Interest: 5, Timeout: math.MaxInt64, Session: math.MinInt64,
		Queued: math.MinInt64, Received: math.MinInt64, Sent: math.MinInt64,
		Established: time.UnixMilli(math.MaxInt64 / 2),
		LastCxid:    math.MinInt64, LastZxid: math.MinInt64, LastReply: math.MaxInt64, LastLatency: math.MinInt64,
		Latency: Latency{Min: math.MinInt64, Avg: -math.MaxInt64, Max: math.MinInt64}}
	if n := length(func(j *jsonWriter) { jsonConnection(j, &c, false) }); n > ListedConn {
		t.Errorf("a connection takes %d bytes", n)
	}
	s := &Status{SessionList: []Session{{ID: math.MinInt64, Expires: time.Now()}}}
	if n := length(func(j *jsonWriter) { jsonDump(j, s) }) - len(
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
	j := &jsonWriter{w: bufio.NewWriter(&b)}
	a.runCommand(j, a.byName["watches"], "watches", 0, nil)
	j.w.Flush()
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
