package audit

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
)

func opened(t *testing.T, name string) *Log {
	t.Helper()
	l, err := Open(Options{Name: name,
		Now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC) }})
	must.OK(t, err)
	return l
}

// lines returns the lines of the file without their times. It leaves out the lines about start and stop.
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
	ids := []jute.ID{{Scheme: "super", ID: "root"}, {Scheme: "digest", ID: "ann:hash="},
		{Scheme: "digest", ID: ":hash="}, {Scheme: "ip", ID: "10.0.0.1"}}
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
		who + "delete\tznode=" + long[:maxValue] + "...(900001 bytes)\tresult=failure",
		who + "delete\tznode=/c\tresult=failure",
		who + "login\tresult=failure",
	}
	if got := lines(t, file); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%q\nnot %q", got, want)
	}
}

// TestChangesOverHTTPAndFailedLogins: a change has a line with the user, the address and the request, but
// never a password. Reads have no lines.
func TestChangesOverHTTPAndFailedLogins(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	l := opened(t, file)
	super := port.Super(func(_, password string) bool { return password == "right" })
	h := l.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		body.ReadFrom(r.Body)
		_, no := super.User(r, "")
		switch {
		case r.URL.Path == "/actions/break": // as if the token of the page were wrong
			w.WriteHeader(http.StatusForbidden)
		case no != nil && r.Header.Get("Authorization") != "":
			w.WriteHeader(no.Status)
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
	ask("POST", "/members", "Basic c3VwZXI6d3Jvbmc= wrong", "{}") // the user and the password are one text
	ask("POST", "/members", "digest wrong", "{}")
	ask("POST", "/actions/break", "digest super:right", "{}") // refused, although the login is right
	l.Close()
	const who = "user=super\tip=10.0.0.1\toperation="
	want := []string{
		who + "POST /members\trequest={\"op\":\"add\"}\tresult=success",
		who + "POST /members\trequest={\"op\":\"remove\"}\tresult=failure",
		who + "login\trequest=POST /commands/restore?keep-sessions=true\tresult=failure",
		who + "login\trequest=GET /commands/backup\tresult=failure",
		"user=\tip=10.0.0.1\toperation=login\trequest=POST /members\tresult=failure",
		"user=\tip=10.0.0.1\toperation=login\trequest=POST /members\tresult=failure",
		who + "POST /actions/break\trequest={}\tresult=failure",
	}
	if got := lines(t, file); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%q\nnot %q", got, want)
	}
}

// TestFullDiskStopsTheLogOnly: on a full disk, Add returns, and lost lines are counted. The log continues
// when it can be written again. Reopen begins a new file after the old one was moved.
func TestFullDiskStopsTheLogOnly(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "log")
	must.OK(t, os.Symlink("/dev/full", file))
	l := opened(t, file)
	figures := func(what string, ok func(written, lost int64, problem error) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			f := l.Figures()
			if ok(f.Written, f.Lost, f.Problem) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, f)
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
	old, now := lines(t, file+".1"), lines(t, file)
	if expect.Equal(t, len(old), 1, "the new file: length of %v", old) {
		if expect.Equal(t, len(now), 1, "the new file: length of %v", now) {
			expect.Has(t, now[0], "operation=z", "the new file")
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	l := must.Get(Open(Options{Name: "/dev/null"}))(b)
	defer l.Close()
	r := &observe.Request{Op: jute.OpSetData, Body: wire.SetData("/bench/node-1", make([]byte, 100), -1), Session: 77,
		Addr: "127.0.0.1", IDs: []jute.ID{{Scheme: "ip", ID: "127.0.0.1"}}}
	for b.Loop() {
		l.Request(r)
	}
}

// A multi has a line for each of its changes, or a single line if it failed.
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
		who + "create\tznode=/t\tresult=success", // without a type, as in ZooKeeper's log
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

// Each change has its line, whatever the result; a request that cannot be decoded has none.
func TestEachChangeHasItsLine(t *testing.T) {
	acl := []jute.ACL{{Perms: 31, ID: jute.ID{Scheme: "world", ID: "anyone"}},
		{Perms: jute.PermRead | jute.PermAdmin, ID: jute.ID{Scheme: "ip", ID: "10.0.0.1"}}}
	ok, no := state.Outcome{}, state.Outcome{Code: jute.NoNode}
	made := state.Outcome{Reply: jute.AppendString(nil, "/made")}
	create := func(flags int32) wire.Body { return wire.Create("/a", nil, jute.WorldAnyone, flags) }
	ttl := func(flags int32) wire.Body { return wire.CreateTTL("/a", nil, jute.WorldAnyone, flags, 1000) }
	set := wire.SetData("/a", nil, -1)
	multi := wire.Multi(wire.Op{Type: jute.OpDelete, Body: wire.PathVersion("/a", -1)})
	for _, c := range []struct {
		op   jute.OpCode
		body []byte
		out  state.Outcome
		want string // what follows the address; empty: no line
	}{
		{jute.OpSetData, set, ok, "setData\tznode=/a\tresult=success"},
		{jute.OpSetData, set, state.Outcome{Refused: true}, "setData\tznode=/a\tresult=failure"},
		{jute.OpSetData, set, state.Outcome{Unknown: true}, "setData\tznode=/a\tresult=invoked"},
		{jute.OpCreate, create(3), state.Outcome{Unknown: true},
			"create\tznode=/a\tznode_type=ephemeral_sequential\tresult=invoked"},
		{jute.OpMulti, multi, state.Outcome{Unknown: true}, "multiOperation\tresult=invoked"},
		{jute.OpReconfig, nil, state.Outcome{Unknown: true}, "reconfig\tresult=invoked"},
		{jute.OpSetData, set[:5], ok, ""},
		{jute.OpSetData, set, made, "setData\tznode=/a\tresult=success"},
		{jute.OpSetACL, wire.SetACL("/a", acl, -1), ok,
			"setAcl\tznode=/a\tacl=world:anyone:cdrwaip:10.0.0.1:ra\tresult=success"},
		{jute.OpCreate, create(0), made, "create\tznode=/made\tznode_type=persistent\tresult=success"},
		{jute.OpCreate, create(0), ok, "create\tznode=/a\tznode_type=persistent\tresult=success"},
		{jute.OpCreate, create(3), no, "create\tznode=/a\tznode_type=ephemeral_sequential\tresult=failure"},
		{jute.OpCreate, create(3), state.Outcome{Code: jute.NoAuth, Divided: true},
			"create\tznode=/a\tznode_type=ephemeral_sequential\t" +
				"request=refused by --one-layout\tresult=failure"},
		{jute.OpCreate2, create(99), no, "create\tznode=/a\tznode_type=unknown\tresult=failure"},
		{jute.OpCreateContainer, create(4), made, "create\tznode=/made\tznode_type=container\tresult=success"},
		{jute.OpCreateTTL, ttl(5), made, "create\tznode=/made\tznode_type=persistent_with_ttl\tresult=success"},
		{jute.OpCreateTTL, ttl(6), made,
			"create\tznode=/made\tznode_type=persistent_sequential_with_ttl\tresult=success"},
		{jute.OpCreateTTL, ttl(0), no, "create\tznode=/a\tznode_type=persistent_with_ttl\tresult=failure"},
		{jute.OpReconfig, nil, no, "reconfig\tresult=failure"},
		{jute.OpSASL, nil, ok, ""},
		{jute.OpSASL, nil, state.Outcome{Code: jute.AuthFailed}, "login\tresult=failure"},
		{jute.OpMulti, multi, no, "multiOperation\tresult=failure"},
		{jute.OpMulti, multi, state.Outcome{Code: jute.MarshallingError}, ""},
		{jute.OpMulti, multi, ok, ""}, // the reply has no results
	} {
		file := filepath.Join(t.TempDir(), "log")
		l := opened(t, file)
		l.Request(&observe.Request{Op: c.op, Body: c.body, Session: 1, Addr: "h", Outcome: c.out})
		l.Close()
		var want []string
		if c.want != "" {
			want = []string{"session=0x1\tuser=\tip=h\toperation=" + c.want}
		}
		expect.List(t, lines(t, file), want, "%v %+v", c.op, c.out)
	}
}

// The end of a session has a line for each node that was removed with it. The user in these lines is the
// owner of the process.
func TestNodesOfEndedSessionsHaveLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	l := opened(t, file)
	l.Ended(0x1f, []tree.Event{{Type: jute.EventDeleted, Path: "/a"},
		{Type: jute.EventChildrenChanged, Path: "/"},
		{Type: jute.EventDeleted, Path: "/b"},
		{Type: jute.EventDeleted, Path: "/" + strings.Repeat("x", 5*maxValue)}})
	l.Close()
	who := "zlockd"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	const what = "\toperation=ephemeralZNodeDeletionOnSessionCloseOrExpire\tznode="
	expect.List(t, lines(t, file), []string{
		"session=0x1f\tuser=" + who + what + "/a\tresult=success",
		"session=0x1f\tuser=" + who + what + "/b\tresult=success",
		"session=0x1f\tuser=" + who + what + "/" + strings.Repeat("x", maxValue-1) +
			"...(5121 bytes)\tresult=success"})
	expect.Equal(t, l.Figures(), Figures{Written: 5})
}

// Lines carry the time at which they were added, to the millisecond.
func TestTimesOfLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := must.Get(Open(Options{Name: file, Now: func() time.Time { return at }}))(t)
	var want []string
	for _, ms := range []int{0, 7, 89, 999, 1000, 61_234} {
		at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
		l.Add(&Event{Operation: "x"})
		want = append(want, at.Format("2006-01-02 15:04:05,000 INFO audit: "))
	}
	l.Close()
	var got []string
	for line := range strings.Lines(string(must.Get(os.ReadFile(file))(t))) {
		if begin, _, ok := strings.Cut(line, "user=\toperation=x"); ok {
			got = append(got, begin)
		}
	}
	expect.List(t, got, want)
}

// The log looks at the beginning of a request and at the end of an answer, however large they are.
func TestLargeRequestsAndAnswersOverHTTP(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	l := opened(t, file)
	var answer []string
	h := l.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		for _, part := range answer {
			io.WriteString(w, part)
		}
		expect.OK(t, http.NewResponseController(w).Flush())
	}))
	ask := func(method, kind, body string, parts ...string) {
		answer = parts
		r := httptest.NewRequest(method, "/members", iotest.OneByteReader(strings.NewReader(body)))
		r.RemoteAddr = "10.0.0.1:99"
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		expect.Equal(t, w.Body.String(), strings.Join(parts, ""), "the answer comes through")
	}
	long := strings.Repeat("x", kept)
	ask("HEAD", "application/json", "{}")
	ask("POST", "application/json; charset=utf-8", long+"y")
	ask("PUT", "application/octet-stream", "secret")
	ask("POST", "application/json", "{}", "{\"error\" : \"", "no\"}", long[1:])
	ask("POST", "application/json", "{}", long, "{\"error\": ", "\"no\"}")
	ask("POST", "application/json", "{}", "\"error\":\"no\""+long)
	ask("POST", "application/json", "{}", "\"error\":\"no\"", long)
	l.Close()
	const who = "user=\tip=10.0.0.1\toperation="
	expect.List(t, lines(t, file), []string{
		who + "POST /members\trequest=" + long + "\tresult=success",
		who + "PUT /members\tresult=success",
		who + "POST /members\trequest={}\tresult=success",
		who + "POST /members\trequest={}\tresult=failure",
		who + "POST /members\trequest={}\tresult=success",
		who + "POST /members\trequest={}\tresult=success"})
}
