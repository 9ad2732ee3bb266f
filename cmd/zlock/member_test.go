package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// runIn calls the command line in this process.
func runIn(t *testing.T, env map[string]string, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e strings.Builder
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	a := &app{stdin: null, stdout: &o, stderr: &e, getenv: func(k string) string { return env[k] }}
	code = a.main(args)
	return o.String(), e.String(), code
}

// fakeMembers is the admin listener of a cluster in which changes take their time.
type fakeMembers struct {
	mu       sync.Mutex
	voter    map[int]bool
	leader   int
	far      map[int]*memberFar
	answers  map[string]int    // at addresses: in so many tries from now
	known    map[string]bool   // addresses where the member's own directory is
	at       map[string]string // where who answers at an address says that it is, if not there
	stumble  int               // requests that end with the leader
	got      []memberChange    // but for checks
	lists    int
	restarts bool // an operator restarts who comes next, one server each five lists
	late     int  // lists until a member that was added is in them
	old      bool // a release that cannot look, and does not tell how far members are
	paths    map[int]string
	t        *testing.T
}

func newFakeMembers(t *testing.T) (f *fakeMembers, env map[string]string, auth string) {
	f = &fakeMembers{voter: map[int]bool{2: true, 3: true, 10: false}, leader: 2, far: map[int]*memberFar{}, answers: map[string]int{}, known: map[string]bool{}, at: map[string]string{},
		paths: map[int]string{2: "h2:2888", 3: "h3:2888", 10: "h10:2888"}, t: t}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	auth = filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(auth, []byte("# the super user\ndigest:super:secret:word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return f, map[string]string{"ZLOCK_ADMIN": strings.TrimPrefix(srv.URL, "http://")}, auth
}

func (f *fakeMembers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Method == http.MethodGet {
		f.list(w)
		return
	}
	var ch memberChange
	if err := json.NewDecoder(r.Body).Decode(&ch); err != nil {
		f.t.Error(err)
	}
	if h := r.Header.Get("Authorization"); h != "digest super:secret:word" {
		f.t.Errorf("authorization %q", h)
	}
	refuse := func(text string) {
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintf(w, `{"error":%q}`, text)
	}
	if ch.Op != "check" && f.stumble > 0 {
		f.stumble--
		refuse("there is no leader at the moment; try again")
		return
	}
	id := int(ch.ID)
	switch ch.Op {
	case "check":
		if f.old {
			refuse(`unknown change "check"; use add, promote or remove`)
			return
		}
		if ch.Addr == "wrong:2888" {
			refuse("server 4 cannot be what answers at wrong:2888: this is server 5, not 4; check the --peers lists")
			return
		}
		f.answers[ch.Addr]--
		heard := "null"
		if f.answers[ch.Addr] < 0 {
			heard = "0"
		}
		fmt.Fprintf(w, `{"error":null,"v":1,"heard_ms":%s,"waits":"connection refused","at":%q,"known":%v}`, heard, cmp.Or(f.at[ch.Addr], ch.Addr), f.known[ch.Addr])
		return
	case "add":
		f.late = 2
		f.voter[id], f.paths[id] = false, ch.Addr
		f.far[id] = &memberFar{Lag: 5000}
	case "promote", "lead":
		if _, is := f.voter[id]; !is {
			refuse(fmt.Sprintf("server %d is not a member; add it first", id))
			return
		}
		if ch.Op == "lead" {
			f.leader = id
			break
		}
		f.voter[id] = true
	case "remove":
		if id == 9 {
			refuse("member 9 is unknown")
			return
		}
		delete(f.voter, id)
	case "move":
		f.paths[id] = ch.Addr
	}
	f.got = append(f.got, ch)
}

// list is the list; who follows gets further each time.
func (f *fakeMembers) list(w http.ResponseWriter) {
	f.lists++
	if f.restarts {
		f.restart()
	}
	members := map[int]any{}
	f.late--
	for id, voter := range f.voter {
		if f.far[id] != nil && f.far[id].Lag == 5000 && f.late > 0 {
			continue
		}
		far := f.far[id]
		if f.old {
			far = new(memberFar)
		} else if far == nil {
			heard, none := int64(12), int64(0)
			far = &memberFar{Applied: 9000, Heard: &heard, LagBytes: &none, Version: "1.1"}
		} else if far.Lag > 0 {
			heard := int64(5)
			far.Applied, far.Lag, far.Heard = far.Applied+2500, far.Lag-2500, &heard
			left := far.Lag * 100
			far.LagBytes = &left
		}
		members[id] = struct {
			Peer  string `json:"peer"`
			Voter bool   `json:"voter"`
			memberFar
		}{f.paths[id], voter, *far}
	}
	b, err := json.Marshal(map[string]any{"v": 1, "id": 2, "leader": f.leader, "members": members})
	if err != nil {
		f.t.Error(err)
	}
	w.Write(b)
}

// restart lets the servers go down and come back in the order 10, 3, 2; while 2,
// which leads, is down, 3 leads.
func (f *fakeMembers) restart() {
	round, step := f.lists/5, f.lists%5
	if round > 2 {
		return
	}
	far := f.far[[]int{10, 3, 2}[round]]
	switch step {
	case 3:
		far.Heard, far.Waits = nil, "connection refused"
		if round == 2 {
			f.leader = 3
		}
	case 4:
		heard := int64(1)
		far.Heard, far.Waits = &heard, ""
		far.Starts++
	}
}

func TestMemberListTellsHowFarEachIs(t *testing.T) {
	f, env, _ := newFakeMembers(t)
	f.far[10] = &memberFar{Waits: "connection refused"}
	out, errs, code := runIn(t, env, "member", "list", "-o", "plain")
	if want := "2\th2:2888\t\tleader\t9000\t0\t10ms\t1.1\n3\th3:2888\t\tvoter\t9000\t0\t10ms\t1.1\n10\th10:2888\t\tnon-voter\t\t\t\t\n"; out != want || errs != "" || code != 0 {
		t.Errorf("list: %q %q %d", out, errs, code)
	}
	out, _, _ = runIn(t, env, "member", "list", "-o", "json")
	if !strings.HasPrefix(out, `{"v":1,"id":2,"peer":"h2:2888","role":"leader","applied":9000,"lag":0,"lag_bytes":0,"heard_ms":12,"version":"1.1"`) ||
		!strings.Contains(out, `"heard_ms":null`) || !strings.Contains(out, `"waits":"connection refused"`) {
		t.Errorf("list: %s", out)
	}
}

func TestMemberChangesGoOnToTheirEnd(t *testing.T) {
	for _, tc := range []struct {
		args    string
		prepare func(*fakeMembers)
		err     string // a part of it; all of it if it ends with a line end
		code    int
		got     string
	}{
		{"add 4 h4:2888", func(f *fakeMembers) { f.answers["h4:2888"] = 2 }, "waiting for server 4 to answer at h4:2888: connection refused", 0, "[{add 4 h4:2888} {promote 4 }]"},
		{"add 4 h4:2888", func(f *fakeMembers) { f.stumble = 2 }, "zlock: server 4 follows, 2500 entries, 244 KiB behind\nzlock: server 4 votes\n", 0, "[{add 4 h4:2888} {promote 4 }]"},
		{"add 4 h4:2888", func(f *fakeMembers) { f.at["h4:2888"] = "h5:2888" }, "server 4 says that it is at h5:2888; that is what", 0, "[{add 4 h4:2888} {promote 4 }]"},
		{"add 4 h4:2888", func(f *fakeMembers) { f.old = true }, "server 4 votes", 0, "[{add 4 h4:2888} {promote 4 }]"},
		{"--no-vote add 4 h4:2888", nil, "server 4 follows; it has no vote", 0, "[{add 4 h4:2888}]"},
		{"add 10 h10:2888", nil, "server 10 votes", 0, "[{promote 10 }]"},
		{"add 4 wrong:2888", nil, "zlock: member: server 4 cannot be what answers at wrong:2888: this is server 5, not 4; check the --peers lists\n", exitNo, "[]"},
		{"add 4 h3:2888", nil, "zlock: member: server 3 is at h3:2888; two members cannot have one address\n", exitNo, "[]"},
		{"add 3 h3:2888", nil, "zlock: member: server 3 is a member already, at h3:2888\n", exitNo, "[]"},
		{"add 3 h4:2888", nil, "if it is to be at h4:2888: zlock member replace 3 h4:2888\n", exitNo, "[]"},
		{"-w 0.5 add 4 h4:2888", func(f *fakeMembers) { f.answers["h4:2888"] = 1000 }, "server 4 does not answer at h4:2888: connection refused; start it there", exitNo, "[]"},
		{"promote 10", nil, "", 0, "[{promote 10 }]"},
		{"promote 3", nil, "", 0, "[]"},
		{"promote 9", nil, "zlock: member: server 9 is not a member; add it first\n", exitNo, "[]"},
		{"-w 0.5 promote 10", func(f *fakeMembers) { f.far[10] = &memberFar{Waits: "for its cluster"} }, "there was no progress for 500ms: for its cluster. It stays a member without a vote", exitNo, "[]"},
		{"replace 3", nil, "until server 3 has caught up there are 1 voters instead of 2", 0, "[{remove 3 } {add 3 h3:2888} {promote 3 }]"},
		{"replace 3 h4:2888", func(f *fakeMembers) { f.stumble = 1; f.answers["h4:2888"] = 1 }, "server 3 votes", 0, "[{remove 3 } {add 3 h4:2888} {promote 3 }]"},
		{"replace 10", nil, "server 10 votes not", 0, "[{remove 10 } {add 10 h10:2888}]"},
		{"replace 3", func(f *fakeMembers) { f.known["h3:2888"] = true }, "there is nothing to replace", exitNo, "[]"},
		{"replace 3 h4:2888", func(f *fakeMembers) { f.known["h4:2888"] = true }, "has moved from h3:2888 to h4:2888 with its data", 0, "[{move 3 h4:2888}]"},
		{"replace 9", nil, "server 9 is not a member; add it", exitNo, "[]"},
		{"lead 3", func(f *fakeMembers) { f.stumble = 1 }, "server 3 leads", 0, "[{lead 3 }]"},
		{"lead 2", nil, "server 2 leads", 0, "[]"},
		{"lead 9", nil, "server 9 is not a member", exitNo, "[]"},
		{"remove 3", func(f *fakeMembers) { f.stumble = 1 }, "", 0, "[{remove 3 }]"},
		{"remove 9", nil, "zlock: member: member 9 is unknown\n", exitNo, "[]"},
		{"remove x", nil, "zlock: member: the ID of a member is a number\nTry 'zlock member --help'.\n", exitFailed, "[]"},
		{"add 4", nil, "zlock: member: member add takes 2 operands\nTry 'zlock member --help'.\n", exitFailed, "[]"},
		{"--no-vote promote 4", nil, "--no-vote is for add", exitFailed, "[]"},
		{"rename 4", nil, "is none of list, add, promote, replace, lead, remove", exitFailed, "[]"},
	} {
		f, env, auth := newFakeMembers(t)
		if tc.prepare != nil {
			tc.prepare(f)
		}
		_, errs, code := runIn(t, env, append([]string{"member", "--auth-file", auth}, strings.Fields(tc.args)...)...)
		want := strings.Replace(tc.err, "votes not", "follows; it has no vote", 1)
		if !strings.Contains(errs, want) || code != tc.code {
			t.Errorf("%s: %q, %d", tc.args, errs, code)
		}
		if strings.Contains(errs, "says that it is at") != (len(f.at) > 0) {
			t.Errorf("%s: says where it is: %q", tc.args, errs)
		}
		if got := fmt.Sprint(f.got); got != tc.got {
			t.Errorf("%s: asked for %s", tc.args, got)
		}
	}
}

// Every command has a help text made of its flags, and its options are completed.
func TestEveryCommandHasHelpAndCompletion(t *testing.T) {
	for _, c := range commands() {
		if c.hidden {
			continue
		}
		out, errs, code := runIn(t, nil, c.name, "--help")
		if code != 0 || errs != "" || !strings.HasPrefix(out, "Usage: zlock "+c.name) || !strings.Contains(out, "--help") || c.does == "" {
			t.Errorf("%s --help: %d %q\n%s", c.name, code, errs, out)
		}
		found := (&app{getenv: os.Getenv}).candidates([]string{c.name, "--"})
		if len(found) == 0 {
			t.Errorf("%s: no option is completed", c.name)
		}
		for _, f := range found {
			if !strings.Contains(out, f.word) {
				t.Errorf("%s: %s is completed but not in the help", c.name, f.word)
			}
		}
	}
}

func TestForeignTextCannotCommandATerminal(t *testing.T) {
	if got := clean("a\x1b[2Jb\tc\nd\u0085e\xff"); strings.ContainsAny(got, "\x1b\t\n\u0085") {
		t.Errorf("cleaned to %q", got)
	}
	if got := clean("Größe → ok"); got != "Größe → ok" {
		t.Errorf("harmless text became %q", got)
	}
}

func TestNeededTimeoutFitsTheMargin(t *testing.T) {
	for _, k := range []string{"0", "1", "5", "30"} {
		killAfter, err := parseDuration(k)
		if err != nil {
			t.Fatal(err)
		}
		need := neededTimeout(marginFor(killAfter))
		if checkMargin(true, need, killAfter) != nil {
			t.Errorf("kill-after %v: %v is refused", killAfter, need)
		}
		if checkMargin(true, need-1e9, killAfter) == nil {
			t.Errorf("kill-after %v: a second less than %v is allowed", killAfter, need)
		}
		if killFor(need) < killAfter {
			t.Errorf("%v would do for kill-after %v, but killFor says %v", need, killAfter, killFor(need))
		}
	}
}
