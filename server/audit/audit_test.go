package audit

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

func opened(t *testing.T, name string) *Log {
	t.Helper()
	l, err := Open(name, func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC) })
	must.OK(t, err)
	return l
}

// lines returns the file's lines without those of start and stop and without their times.
func lines(t *testing.T, file string) (list []string) {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	for line := range strings.Lines(string(text)) {
		fields, ok := strings.CutPrefix(line, "2026-01-02 03:04:05,006 INFO audit: ")
		expect.That(t, ok, "the line begins otherwise: %q", line)
		if !strings.Contains(line, "operation=serverSt") {
			list = append(list, strings.TrimSuffix(fields, "\n"))
		}
	}
	return list
}

func TestLinesHaveTheFieldsOfZooKeepersLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	l := opened(t, file)
	ids := []jute.ID{{Scheme: "super"}, {Scheme: "digest", ID: "ann:hash="}, {Scheme: "ip", ID: "10.0.0.1"}}
	request := func(op jute.OpCode, body []byte, out state.Outcome) {
		l.Request(&observe.Request{Op: op, Body: body, Session: -1, Addr: "10.0.0.1", IDs: ids, Outcome: out})
	}
	request(jute.OpCreate, wire.Create("/a-", nil, jute.WorldAnyone, 2),
		state.Outcome{Reply: jute.AppendString(nil, "/a-7")})
	request(jute.OpCreate, wire.Create("/a\tb\n", nil, jute.WorldAnyone, 1), state.Outcome{Code: jute.NoAuth})
	long := "/" + strings.Repeat("x", 900_000)
	for _, path := range []string{"/\x1b[2J\x00\x7f\u009b\u2028\x9bé", long} {
		request(jute.OpDelete, wire.PathVersion(path, -1), state.Outcome{Code: jute.NoNode})
	}
	request(jute.OpDeleteContainer, wire.PathVersion("/c", -1), state.Outcome{Code: jute.BadArguments})
	request(jute.OpGetData, wire.PathWatch("/a", false), state.Outcome{})
	request(jute.OpAuth, nil, state.Outcome{})
	request(jute.OpAuth, nil, state.Outcome{Code: jute.AuthFailed})
	l.Close()
	const who = "session=0xffffffffffffffff\tuser=ann,10.0.0.1\tip=10.0.0.1\toperation="
	want := []string{
		who + "create\tznode=/a-7\tznode_type=persistent_sequential\tresult=success",
		who + "create\tznode=/ab\tznode_type=ephemeral\tresult=failure",
		who + "delete\tznode=/[2J\ufffdé\tresult=failure",
		who + "delete\tznode=" + long[:maxValue] + "\tresult=failure",
		who + "delete\tznode=/c\tresult=failure",
		who + "login\tresult=failure",
	}
	if got := lines(t, file); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%q\nnot %q", got, want)
	}
}

// TestChangesOverHTTPAndFailedLogins: a change has a line with the user, the address and what was
// asked for; a password never has. Reads have none.
func TestChangesOverHTTPAndFailedLogins(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	l := opened(t, file)
	h := l.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		body.ReadFrom(r.Body)
		switch {
		case strings.HasSuffix(r.Header.Get("Authorization"), "wrong"):
			w.WriteHeader(http.StatusForbidden)
		case strings.Contains(body.String(), "remove"):
			w.Write([]byte("{\"kind\":\"x\"}\n{\"done\":true,\"error\":\"no such member\"}\n"))
		}
	}))
	ask := func(method, path, auth, body string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.RemoteAddr = "10.0.0.1:99"
		if auth != "" {
			r.Header.Set("Authorization", auth)
		}
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	ask("GET", "/members", "", "")
	ask("GET", "/commands/backup", "digest super:right", "")
	ask("POST", "/members", "digest super:right", "{\"op\":\"add\"}\n")
	ask("POST", "/members", "digest super:right", "{\"op\":\"remove\"}")
	ask("POST", "/commands/restore?keep-sessions=true", "digest super:wrong", "")
	ask("GET", "/commands/backup", "digest super:wrong", "")
	ask("POST", "/members", "Basic c3VwZXI6d3Jvbmc= wrong", "{}") // its user stands beside its password
	ask("POST", "/members", "digest wrong", "{}")
	l.Close()
	const who = "user=super\tip=10.0.0.1\toperation="
	want := []string{
		who + "POST /members\trequest={\"op\":\"add\"}\tresult=success",
		who + "POST /members\trequest={\"op\":\"remove\"}\tresult=failure",
		who + "login\trequest=POST /commands/restore?keep-sessions=true\tresult=failure",
		who + "login\trequest=GET /commands/backup\tresult=failure",
		"user=\tip=10.0.0.1\toperation=login\trequest=POST /members\tresult=failure",
		"user=\tip=10.0.0.1\toperation=login\trequest=POST /members\tresult=failure",
	}
	if got := lines(t, file); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%q\nnot %q", got, want)
	}
}

// TestFullDiskStopsTheLogOnly: Add returns whatever becomes of the lines, which are counted; the
// log goes on once it can, and Reopen follows a file that was moved away.
func TestFullDiskStopsTheLogOnly(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "log")
	must.OK(t, os.Symlink("/dev/full", file))
	l := opened(t, file)
	figures := func(what string, ok func(written, lost int64, problem error) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(l.Figures()); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				w, n, err := l.Figures()
				t.Fatalf("%s: %d written, %d lost, %v", what, w, n, err)
			}
		}
	}
	for range 10 {
		l.Add(&Event{Operation: "x"})
	}
	figures("full", func(w, lost int64, err error) bool { return w == 0 && lost == 11 && err != nil })
	must.OK(t, os.Remove(file))
	l.Add(&Event{Operation: "y"})
	figures("room", func(w, lost int64, err error) bool { return w == 1 && lost == 11 && err == nil })
	must.OK(t, os.Rename(file, file+".1"))
	l.Reopen()
	figures("reopened", func(int64, int64, error) bool { _, err := os.Stat(file); return err == nil })
	l.Add(&Event{Operation: "z"})
	l.Close()
	if old, now := lines(t, file+".1"), lines(t, file); len(old) != 1 || len(now) != 1 ||
		!strings.Contains(now[0], "operation=z") {
		t.Errorf("the old file has %q, the new one %q", old, now)
	}
}

func BenchmarkRequest(b *testing.B) {
	l := must.Get(Open("/dev/null", time.Now))(b)
	defer l.Close()
	r := &observe.Request{Op: jute.OpSetData, Body: wire.SetData("/bench/node-1", make([]byte, 100), -1), Session: 77,
		Addr: "127.0.0.1", IDs: []jute.ID{{Scheme: "ip", ID: "127.0.0.1"}}}
	for b.Loop() {
		l.Request(r)
	}
}

// A multi has a line for each of its changes, and one in all if it has failed.
func TestMultiHasALineForEachChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	l := opened(t, file)
	body := wire.Multi(
		wire.Op{Type: jute.OpCheck, Body: wire.PathVersion("/", -1)},
		wire.Op{Type: jute.OpCreate, Body: wire.Create("/a", nil, jute.WorldAnyone, 1)},
		wire.Op{Type: jute.OpCreateTTL, Body: wire.CreateTTL("/t", nil, jute.WorldAnyone, 5, 1000)},
		wire.Op{Type: jute.OpSetData, Body: wire.SetData("/a", nil, -1)},
		wire.Op{Type: jute.OpCreate2, Body: wire.Create("/s-", nil, jute.WorldAnyone, 2)},
		wire.Op{Type: jute.OpDelete, Body: wire.PathVersion("/t", -1)})
	var reply []byte
	result := func(op jute.OpCode, path string, stat bool) {
		reply = jute.AppendMultiHeader(reply, op, false, jute.OK)
		if path != "" {
			reply = jute.AppendString(reply, path)
		}
		if stat {
			reply = jute.AppendStat(reply, &jute.Stat{})
		}
	}
	result(jute.OpCheck, "", false)
	result(jute.OpCreate, "/a", false)
	result(jute.OpCreateTTL, "/t", true)
	result(jute.OpSetData, "", true)
	result(jute.OpCreate2, "/s-7", true)
	result(jute.OpDelete, "", false)
	reply = jute.AppendMultiHeader(reply, -1, true, -1)
	failed := jute.AppendMultiHeader(nil, jute.OpError, false, jute.NoNode)
	for _, r := range [][]byte{reply, failed} {
		l.Request(&observe.Request{Op: jute.OpMulti, Body: body, Session: 1, Addr: "h", Outcome: state.Outcome{Reply: r}})
	}
	l.Close()
	const who = "session=0x1\tuser=\tip=h\toperation="
	want := []string{
		who + "create\tznode=/a\tznode_type=ephemeral\tresult=success",
		who + "create\tznode=/t\tresult=success", // as ZooKeeper tells it
		who + "setData\tznode=/a\tresult=success",
		who + "create\tznode=/s-7\tresult=success",
		who + "delete\tznode=/t\tresult=success",
		who + "multiOperation\tresult=failure",
	}
	if got := lines(t, file); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%q\nnot %q", got, want)
	}
	all := string(must.Get(os.ReadFile(file))(t))
	expect.Has(t, all, "\toperation=serverStart\tresult=success\n")
	expect.Has(t, all, "\toperation=serverStop\tresult=invoked\n")
}
