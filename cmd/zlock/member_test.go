package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// runIn runs a command line in this process.
func runIn(t *testing.T, env map[string]string, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e strings.Builder
	null := must.Get(os.Open(os.DevNull))(t)
	defer null.Close()
	a := &call.App{Stdin: null, Stdout: &o, Stderr: &e, Getenv: func(k string) string { return env[k] }}
	code = program(a).Main(args)
	return o.String(), e.String(), code
}

// fakeMembers is the admin listener of a cluster.
type fakeMembers struct {
	mu       sync.Mutex
	voter    map[uint32]bool
	leader   uint32
	far      map[uint32]*status.Progress
	steps    []string     // answers to a job, in order; at "" the connection ends
	got      []change.Job // jobs that zlock has asked for
	lists    int
	restarts bool                // if true, one server after another restarts, one for every five lists
	silent   uint32              // the server that is silent at first
	empty    func(list int) bool // true: this list is empty, because its server has joined no other server yet
	t        *testing.T
}

func newFakeMembers(t *testing.T) (f *fakeMembers, env map[string]string, auth string) {
	f = &fakeMembers{voter: map[uint32]bool{2: true, 3: true, 10: false}, leader: 2,
		far: map[uint32]*status.Progress{}, t: t}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	auth = filepath.Join(t.TempDir(), "auth")
	must.OK(t, os.WriteFile(auth, []byte("# the super user\ndigest:super:secret:word\n"), 0o600))
	return f, map[string]string{"ZLOCK_ADMIN": strings.TrimPrefix(srv.URL, "http://")}, auth
}

func (f *fakeMembers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Method == http.MethodGet {
		f.list(w)
		return
	}
	var j change.Job
	expect.OK(f.t, json.NewDecoder(r.Body).Decode(&j))
	if h := r.Header.Get("Authorization"); h != "digest super:secret:word" {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"error":"Not authorized","code":"unauthorized"}`)
		return
	}
	f.got = append(f.got, j)
	for len(f.steps) > 0 {
		line := f.steps[0]
		f.steps = f.steps[1:]
		if line == "" {
			return
		}
		fmt.Fprintln(w, line)
	}
}

func (f *fakeMembers) list(w http.ResponseWriter) {
	f.lists++
	if f.restarts {
		f.restart()
	}
	list := status.Members{V: 1, ID: 2, Leader: f.leader, Members: map[uint32]status.Member{}}
	if f.leader == 0 {
		list.Reason = "no contact with a leader"
	}
	if f.empty != nil && f.empty(f.lists) {
		list.Leader = 0
		expect.OK(f.t, json.NewEncoder(w).Encode(list))
		return
	}
	for id, voter := range f.voter {
		far := f.far[id]
		if far == nil {
			far = &status.Progress{Applied: 9000, Heard: status.Ago(12), LagBytes: new(int64), Version: "1.1"}
		}
		if id == f.silent && f.lists == 1 {
			far = &status.Progress{Waits: "no answer"}
		}
		list.Members[id] = status.Member{ID: id, Peer: fmt.Sprintf("h%d:2888", id), Voter: voter, Progress: *far}
	}
	expect.OK(f.t, json.NewEncoder(w).Encode(list))
}

// restart() makes the servers stop and start again in the order 10, 3, 2. Server 2 leads; while it is down,
// server 3 leads. A restarted server does not serve at once.
func (f *fakeMembers) restart() {
	round, step := f.lists/5, f.lists%5
	if round > 3 || round == 3 && step > 0 {
		return
	}
	if step == 0 && round > 0 {
		f.far[[]uint32{10, 3, 2}[round-1]].Waits = ""
		return
	}
	far := f.far[[]uint32{10, 3, 2}[round]]
	switch step {
	case 3:
		far.Heard, far.Waits = nil, "connection refused"
		if round == 2 {
			f.leader = 3
		}
	case 4:
		far.Heard, far.Waits = status.Ago(1), "catching up with the leader"
		far.Starts++
	}
}

func TestMemberListTellsHowFarEachIs(t *testing.T) {
	f, env, _ := newFakeMembers(t)
	f.far[10] = &status.Progress{Waits: "connection refused"}
	out, errs, code := runIn(t, env, "member", "list", "-o", "plain")
	want := "2\th2:2888\t\tleader\t9000\t0\t10ms\t1.1\n3\th3:2888\t\tvoter\t9000\t0\t10ms\t1.1\n10\th10:2888\t\tnon-voter\t\t\t\t\n"
	expect.Equal(t, out, want, "list: standard output")
	expect.Equal(t, errs, "", "list: standard error")
	expect.Equal(t, code, 0, "list: exit code; it says %s", errs)
	out, _, _ = runIn(t, env, "member", "list", "-o", "json")
	expect.That(t, strings.HasPrefix(out,
		`{"v":1,"id":2,"peer":"h2:2888","role":"leader","applied":9000,"lag":0,"lag_bytes":0,"heard_ms":12,"version":"1.1"`), "list: %s", out)
	expect.Has(t, out, `"heard_ms":null`, "list: standard output")
	expect.Has(t, out, `"waits":"connection refused"`, "list: standard output")
	f.leader = 0
	_, errs, code = runIn(t, env, "member", "list")
	expect.Has(t, errs, "no server leads: no contact with a leader", "list without a leader: standard error")
	expect.Equal(t, code, 0, "list without a leader: exit code; it says %s", errs)
}

// The server runs the job, and zlock shows its steps. If zlock loses the connection, it asks the server
// again.
func TestMemberJobsAreShown(t *testing.T) {
	const follows = `{"kind":"follows","text":"server 4 follows"}`
	for _, tc := range []struct {
		args  string
		steps []string
		err   string // expected on standard error
		code  int
		got   string
	}{
		{"add 4 h4:2888", []string{`{"kind":"started"}`, follows, follows, `{"text":"a notice"}`, `{"done":true}`},
			"zlock: server 4 follows\nzlock: a notice\n", 0, "[{add 4 h4:2888 true false 30000 false}]"},
		{"--no-vote -w 7 add 4 h4:2888", []string{`{"done":true}`}, "", 0,
			"[{add 4 h4:2888 true true 7000 false}]"},
		{"add 4 h4:2888", []string{follows, "", `{"done":true}`},
			"zlock: server 4 follows\nzlock: the connection to the server is lost; zlock asks the server " +
				"again\n",
			0, "[{add 4 h4:2888 true false 30000 false} {add 4 h4:2888 true false 30000 true}]"},
		{"replace 4", []string{follows, `{"done":true,"error":"the server stops","code":"interrupted"}`, "",
			`{"done":true}`}, "asks the server again\n",
			0, "[{replace 4  true false 30000 false} {replace 4  true false 30000 true}]"},
		{"replace 4", []string{`{"kind":"removed","text":"server 4 is taken out","rest":{"op":"add","id":4,` +
			`"addr":"h4:2888","wait":true,"no_vote":true,"patience_ms":30000,"again":true}}`, "", `{"done":true}`},
			"zlock: server 4 is taken out\n" +
				"zlock: the connection to the server is lost; zlock asks the server again\n",
			0, "[{replace 4  true false 30000 false} {add 4 h4:2888 true true 30000 true}]"},
		{"lead 4", []string{""},
			"the connection to the admin listener ended: EOF; the same command continues the job",
			call.ExitNoSession,
			"[{lead 4  true false 30000 false}]"},
		{"remove 9", []string{`{"done":true,"error":"server 9 is not a member","code":"not_member"}`},
			"zlock: member: server 9 is not a member\n",
			call.ExitNo, "[{remove 9  true false 30000 false}]"},
		{"remove x", nil, "zlock: member: the ID of a member must be a number\nTry 'zlock member --help'.\n",
			call.ExitFailed, "[]"},
		{"add 4", nil, "zlock: member: member add takes 2 operands\nTry 'zlock member --help'.\n",
			call.ExitFailed, "[]"},
		{"--no-vote promote 4", nil, "--no-vote works only with add", call.ExitFailed, "[]"},
		{"rename 4", nil, "is not one of list, add, promote, replace, lead, remove", call.ExitFailed, "[]"},
	} {
		f, env, auth := newFakeMembers(t)
		f.steps = tc.steps
		_, errs, code := runIn(t, env, append([]string{"member", "--auth-file", auth},
			strings.Fields(tc.args)...)...)
		expect.Has(t, errs, tc.err, "%s: standard error", tc.args)
		expect.Equal(t, code, tc.code, "%s: exit code; it says %s", tc.args, errs)
		if got := fmt.Sprint(f.got); got != tc.got {
			t.Errorf("%s: asked for %s", tc.args, got)
		}
	}
	_, env, _ := newFakeMembers(t)
	_, errs, code := runIn(t, env, "member", "remove", "4")
	expect.Has(t, errs, "those of the servers' --super-digest", "without the password: standard error")
	expect.Equal(t, code, call.ExitNo, "without the password: exit code; it says %s", errs)
}

// Every command has a help text with all its flags, and completion of its options.
func TestEveryCommandHasHelpAndCompletion(t *testing.T) {
	for _, c := range program(new(call.App)).Commands {
		if c.Hidden {
			continue
		}
		out, errs, code := runIn(t, nil, c.Name, "--help")
		expect.Equal(t, code, 0, "%s --help: exit code; it says %s", c.Name, errs)
		expect.Equal(t, errs, "", "%s --help: standard error", c.Name)
		expect.That(t, strings.HasPrefix(out, "Usage: zlock "+c.Name), "%s --help: %d %q\n%s", c.Name, code, errs,
			out)
		expect.Has(t, out, "--help", "%s --help: standard output", c.Name)
		expect.That(t, c.Does != "", "%s --help: %d %q\n%s", c.Name, code, errs, out)
		found, _, code := runIn(t, nil, "__complete", c.Name, "--")
		expect.That(t, found != "", "%s: no option is completed", c.Name)
		expect.Equal(t, code, 0, "%s: exit code", c.Name)
		for line := range strings.Lines(found) {
			word, _, _ := strings.Cut(line, "\t")
			expect.Has(t, out, word, "%s: %s is completed but not in the help", c.Name, word)
		}
	}
}

func TestForeignTextCannotCommandATerminal(t *testing.T) {
	f, env, auth := newFakeMembers(t)
	f.steps = []string{`{"text":"a\u001b[2Jb"}`, `{"done":true}`}
	_, errs, _ := runIn(t, env, "member", "--auth-file", auth, "lead", "2")
	expect.Equal(t, errs, "zlock: a⟨U+001B⟩[2Jb\n", "said is")
}

// With --admin-ca zlock uses TLS and trusts only this authority.
func TestMemberListOverTLS(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"v":1,"id":1,"leader":1,"members":{"1":{"id":1,"peer":"lock1:2888","voter":true}}}`)
	}))
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	must.OK(t, os.WriteFile(ca, text, 0o600))
	addr := srv.Listener.Addr().String()
	for _, tc := range []struct {
		env  map[string]string
		args []string
		code int
		want string
	}{
		{nil, []string{"--admin-addr", addr, "--admin-ca", ca}, 0, "lock1:2888"},
		{map[string]string{"ZLOCK_ADMIN": "https://" + addr, "ZLOCK_ADMIN_CA": ca}, nil, 0, "lock1:2888"},
		{nil, []string{"--admin-addr", "https://" + addr}, call.ExitNoSession, "certificate"},
		{nil, []string{"--admin-addr", addr, "--admin-ca", "/nonexistent"}, call.ExitFailed, "--admin-ca: "},
		{nil, []string{"--admin-addr", addr, "--admin-cert", ca}, call.ExitFailed,
			"--admin-cert and --admin-key"},
	} {
		out, errs, code := runIn(t, tc.env, append([]string{"member", "list"}, tc.args...)...)
		expect.Equal(t, code, tc.code, "%v %v: exit code; it says %s", tc.env, tc.args, errs)
		expect.Has(t, out+errs, tc.want, "%v %v: said", tc.env, tc.args)
	}
}

func TestRestartOrderPutsTheLeaderLast(t *testing.T) {
	_, env, _ := newFakeMembers(t)
	out, errs, code := runIn(t, env, "restart-order", "-o", "plain")
	want := "10\th10:2888\tnon-voter\n3\th3:2888\tvoter\n2\th2:2888\tleader\n"
	expect.Equal(t, out, want, "standard output")
	expect.Equal(t, errs, "", "standard error")
	expect.Equal(t, code, 0, "exit code; it says %s", errs)
}

// Without --wait, the command does not wait for a server that does not answer.
func TestRestartOrderGivesUp(t *testing.T) {
	ctx, answer := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ctx.Done() }))
	defer srv.Close()
	defer answer()
	ended := make(chan int)
	go func() {
		_, _, code := runIn(t, map[string]string{"ZLOCK_ADMIN": strings.TrimPrefix(srv.URL, "http://")},
			"restart-order", "--timeout", "0.3")
		ended <- code
	}()
	select {
	case code := <-ended:
		expect.Equal(t, code, call.ExitNoSession, "exit code")
	// The command must give up earlier, although a single request may take 20 s.
	case <-time.After(15 * time.Second):
		answer()
		<-ended
		t.Error("it waits on")
	}
}

// The command names one server after another, and none while another server is missing. It ends when the last
// server serves. If a silent server answers for the first time, that does not count as its restart.
func TestRestartOrderWaitsForEach(t *testing.T) {
	f, env, _ := newFakeMembers(t)
	for id := range f.voter {
		f.far[id] = &status.Progress{Applied: 10, Heard: status.Ago(1), Starts: 1}
	}
	f.restarts, f.silent = true, 3
	// --timeout limits the wait for an answer, not the time to restart a server.
	out, errs, code := runIn(t, env, "restart-order", "--wait", "--timeout", "0.5", "-o", "plain")
	want := "10\th10:2888\tnon-voter\n3\th3:2888\tvoter\n2\th2:2888\tleader\n"
	expect.Equal(t, out, want, "standard output")
	expect.Equal(t, code, 0, "exit code; it says %s", errs)
	for id, far := range f.far {
		expect.Equal(t, far.Waits, "", "it ends while server %d waits", id)
		expect.Equal(t, far.Starts, 2, "it ends while server %d waits: starts", id)
	}
	for _, want := range []string{"server 10 is being restarted", "server 10 was restarted",
		"server 3 was restarted", "server 2 was restarted"} {
		expect.Has(t, errs, want, "is missing in")
	}
}

// A list without members comes from a server that is starting. The command then still waits for the servers
// that were not restarted yet. It does not wait for a removed server.
func TestRestartOrderWaitsForServersThatAListLacks(t *testing.T) {
	f, env, _ := newFakeMembers(t)
	for id := range f.voter {
		f.far[id] = &status.Progress{Applied: 10, Heard: status.Ago(1), Starts: 1}
	}
	f.voter[4] = false
	f.restarts = true
	f.empty = func(list int) bool {
		if list == 2 {
			delete(f.voter, 4)
		}
		return list == 7 || list == 8
	}
	out, errs, code := runIn(t, env, "restart-order", "--wait", "-o", "plain")
	want := "4\th4:2888\tnon-voter\n10\th10:2888\tnon-voter\n3\th3:2888\tvoter\n2\th2:2888\tleader\n"
	expect.Equal(t, out, want, "servers named")
	expect.Equal(t, code, call.ExitOK, "exit code")
	expect.Has(t, errs, "server 4 is no longer a member", "messages")
	for _, id := range []uint32{10, 3, 2} {
		expect.Equal(t, f.far[id].Starts, 2, "starts of server %d when it ends", id)
	}
}

// If the first list has no members, the command does not report a finished restart.
func TestRestartOrderOfAServerThatKnowsNoMember(t *testing.T) {
	f, env, _ := newFakeMembers(t)
	f.empty = func(int) bool { return true }
	_, errs, code := runIn(t, env, "restart-order", "--wait")
	expect.Equal(t, code, call.ExitNo, "exit code with --wait")
	expect.Has(t, errs, "ask another server", "message with --wait")
	_, _, code = runIn(t, env, "restart-order")
	expect.Equal(t, code, call.ExitOK, "exit code without --wait")
}

// A removed server still knows the members, but does not know which of them leads and must restart last.
func TestRestartOrderOfAServerThatKnowsNoLeader(t *testing.T) {
	f, env, _ := newFakeMembers(t)
	f.leader = 0
	out, errs, code := runIn(t, env, "restart-order", "-o", "plain")
	expect.Equal(t, code, call.ExitNo, "exit code: %s", errs)
	expect.Equal(t, out, "", "the order")
	expect.Has(t, errs, "ask another server")
}
