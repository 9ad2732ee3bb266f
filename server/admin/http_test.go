package admin

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
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

// Names that widespread dashboards and alerts use.
const (
	dashboardGauges = `znode_count ephemerals_count watch_count approximate_data_size num_alive_connections
		outstanding_requests avg_latency min_latency max_latency packets_received packets_sent global_sessions uptime
		open_file_descriptor_count max_file_descriptor_count quorum_size
		proposal_count commit_count looking_count connection_rejected connection_drop_count stale_sessions_expired
		bytes_received_count digest_mismatches_count unrecoverable_error_count ` + leaderGauges
	leaderGauges       = `learners followers synced_followers pending_syncs leader_uptime quorum_size`
	dashboardSummaries = `election_time leader_unavailable_time unavailable_time fsynctime snapshottime dbinittime
		node_created_watch_count node_deleted_watch_count node_changed_watch_count node_children_watch_count
		sync_processor_batch_size sync_processor_queue_size prep_processor_queue_size
		readlatency updatelatency propagation_latency proposal_latency quorum_ack_latency jvm_pause_time_ms`
)

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	return do(t, h, httptest.NewRequest("GET", path, nil))
}

func do(t *testing.T, h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	if r.Host == "example.com" { // httptest sets this host by default
		r.Host = "localhost"
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestCommandsHaveTheBytesOfZooKeeper compares the answers with files in testdata. These files were checked
// by eye against the samples of the admin specification.
func TestCommandsHaveTheBytesOfZooKeeper(t *testing.T) {
	for _, server := range []struct {
		name   string
		status report.Status
	}{{"standalone", standalone()}, {"leader", ensemble()}, {"follower", follower()}} {
		a := newAdmin(t, &fake{status: server.status}, "")
		h := a.Handler()
		for _, c := range a.commands {
			if c.changes || c.name == "monitor" && server.name == "follower" {
				continue
			}
			w := get(t, h, "/commands/"+c.name)
			expect.That(t, w.Code == 200 && w.Header().Get("Content-Type") == "application/json",
				"%s: %d %v", c.name, w.Code, w.Header())
			expect.That(t, json.Valid(w.Body.Bytes()), "%s is no JSON: %s", c.name, w.Body)
			golden(t, server.name+"."+c.name+".json", w.Body.Bytes())
		}
	}
}

func TestCommandList(t *testing.T) {
	a := newAdmin(t, &fake{status: standalone()}, "")
	w := get(t, a.Handler(), "/commands")
	if !strings.HasPrefix(w.Body.String(), "<a href=\"/commands/configuration\">configuration</a>\n<br/>\n") {
		t.Errorf("list begins %.100q", w.Body.String())
	}
	links := regexp.MustCompile(`/commands/(\w+)"`).FindAllStringSubmatch(w.Body.String(), -1)
	var names []string
	for _, l := range links {
		names = append(names, l[1])
	}
	expect.That(t, len(names) == len(a.commands) && slices.IsSorted(names),
		"not all commands, or not sorted: %v", names)
}

func TestAliasesAnswerUnderThePrimaryName(t *testing.T) {
	h := newAdmin(t, &fake{status: standalone()}, "").Handler()
	if a, b := get(t, h, "/commands/isro").Body.String(),
		get(t, h, "/commands/is_read_only").Body.String(); a != b {
		t.Errorf("isro answers %s", a)
	}
}

func TestCommandsThatFail(t *testing.T) {
	f := &fake{status: standalone()}
	h := newAdmin(t, f, "").Handler()
	const unknown = "{\n  \"command\" : \"nope\",\n  \"error\" : \"Unknown command: nope\"\n}"
	w := get(t, h, "/commands/nope")
	expect.That(t, w.Code == 200 && w.Body.String() == unknown, "unknown command: %d %s", w.Code, w.Body)
	const single = "{\n  \"error\" : \"server is not initialized\",\n  \"command\" : \"leader\"\n}"
	w = get(t, h, "/commands/leader")
	expect.Equal(t, w.Body.String(), single, "leader of a single server: %s", w.Body)
	f.status.Serving = false
	const idle = "{\n  \"command\" : \"stat\",\n  \"error\" : \"This ZooKeeper instance is not currently " +
		"serving requests\"\n}"
	if w := get(t, h, "/commands/stat"); w.Code != 200 || w.Body.String() != idle {
		t.Errorf("stat without service: %d %s", w.Code, w.Body)
	}
	for _, name := range []string{"environment", "system_properties", "get_trace_mask", "monitor", "zabstate"} {
		if w := get(t, h, "/commands/"+name); strings.Contains(w.Body.String(), "not currently serving") {
			t.Errorf("%s needs no service", name)
		}
	}
	expect.Equal(t, get(t, h, "/nope").Code, 404, "unknown path")
	expect.Equal(t, do(t, h, httptest.NewRequest("TRACE", "/commands/ruok", nil)).Code, 405, "TRACE")
}

func TestStateIsChangedOnlyByAnAuthorizedPost(t *testing.T) {
	f := &fake{status: standalone()}
	allow := func(user, password string) bool { return user == "super" && password == "se:cret" }
	open := must.Get(New(Options{Source: f, Authorize: allow}))(t)
	closed := newAdmin(t, f, "")
	for _, test := range []struct {
		a             *Admin
		method, login string
		code          int
	}{
		{open, "GET", "digest super:se:cret", 405},
		{open, "HEAD", "digest super:se:cret", 405},
		{open, "POST", "", 401},
		{open, "POST", "Basic c3VwZXI6c2U6Y3JldA==", 401},
		{open, "POST", "digest super:wrong", 403},
		{open, "POST", "digest super", 403},
		{closed, "POST", "digest super:se:cret", 403},
		{open, "POST", "Digest super:se:cret", 200},
	} {
		for _, name := range []string{"stat_reset", "srst", "connection_stat_reset", "set_trace_mask?traceMask=7"} {
			f.resets, f.conns = 0, 0
			before := test.a.mask.Load()
			r := httptest.NewRequest(test.method, "/commands/"+name, nil)
			if test.login != "" {
				r.Header.Set("Authorization", test.login)
			}
			r.Header.Set("X-Forwarded-For", "127.0.0.1")
			w := do(t, test.a.Handler(), r)
			expect.Equal(t, w.Code, test.code,
				"%s %s as %q: %d %s", test.method, name, test.login, w.Code, w.Body)
			if changed := f.resets+f.conns > 0 || before != test.a.mask.Load(); changed && test.code != 200 {
				t.Errorf("%s %s as %q changed state", test.method, name, test.login)
			}
			expect.That(t, !strings.Contains(w.Body.String(), "se:cret"), "password in %s", w.Body)
		}
		if test.code == 200 && (f.resets+f.conns == 0 && test.a.mask.Load() != 7) {
			t.Error("nothing was changed")
		}
	}
	expect.Equal(t, do(t, open.Handler(), httptest.NewRequest("POST", "/commands/ruok", nil)).Code, 405,
		"POST of a reading command")
}

func TestSetTraceMaskWantsAnArgument(t *testing.T) {
	a := must.Get(New(Options{Source: &fake{status: standalone()}, Authorize: func(string, string) bool {
		return true
	}}))(t)
	r := httptest.NewRequest("POST", "/commands/set_trace_mask", nil)
	r.Header.Set("Authorization", "digest a:b")
	const want = "{\n  \"error\" : \"setTraceMask requires long traceMask argument\",\n  \"command\" : " +
		"\"set_trace_mask\"\n}"
	w := do(t, a.Handler(), r)
	expect.Equal(t, w.Body.String(), want, "got %s", w.Body)
}

func TestHealthAndReadiness(t *testing.T) {
	f := &fake{status: standalone()}
	h := newAdmin(t, f, "").Handler()
	type answer struct {
		V       int
		Status  string
		Reasons []string
		Notices []string
		Mode    *string
	}
	look := func(path string) (int, answer) {
		w := get(t, h, path)
		var v answer
		err := json.Unmarshal(w.Body.Bytes(), &v)
		must.OK(t, err, "%s", w.Body)
		must.Equal(t, v.V, 1, "the version of the answer %s", w.Body)
		return w.Code, v
	}
	code, v := look("/ready")
	expect.Equal(t, code, 200, "code of /ready at a server that serves")
	expect.Equal(t, v.Status, "ready", "/ready at a server that serves")
	if expect.That(t, v.Mode != nil, "/ready at a server that serves names no mode") {
		expect.Equal(t, *v.Mode, "standalone", "mode of a server alone")
	}
	f.status.Notices = []string{"peers talk in the clear"}
	code, v = look("/health")
	expect.Equal(t, code, 200, "code of /health at a server that serves")
	expect.Equal(t, v.Status, "ok", "/health at a server that serves")
	expect.Equal(t, len(v.Reasons), 0, "reasons at a server that serves: %q", v.Reasons)
	expect.Equal(t, len(v.Notices), 1, "notices: %q", v.Notices)
	f.status.Serving, f.status.Reason = false, "no leader for 3s"
	code, v = look("/ready")
	expect.Equal(t, code, 503, "code of /ready without a leader")
	expect.That(t, v.Mode == nil, "/ready names a mode without a leader")
	expect.List(t, v.Reasons, []string{"no leader for 3s"}, "reasons of /ready without a leader")
	code, _ = look("/health")
	expect.Equal(t, code, 200, "code of /health without a leader; another one would have the server restarted")
	f.status.Faults = []string{"disk full"}
	code, v = look("/health")
	expect.Equal(t, code, 503, "code of /health with a fault")
	expect.List(t, v.Reasons, []string{"disk full"}, "reasons of /health with a fault")
}

func TestMetricsHaveBothFamilies(t *testing.T) {
	f := &fake{status: ensemble()}
	h := newAdmin(t, f, "").Handler()
	w := get(t, h, "/metrics")
	must.Equal(t, w.Code, 200, "%d %s", w.Code, w.Body)
	lines := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		if i := strings.LastIndexByte(strings.TrimSpace(line), ' '); i > 0 && line[0] != '#' {
			lines[line[:i]] = strings.TrimSpace(line[i+1:])
		}
	}
	for name := range strings.FieldsSeq(dashboardGauges) {
		for _, n := range []string{name, "zk_" + name} {
			_, ok := lines[n]
			expect.That(t, ok, "%s is missing", n)
		}
	}
	for name := range strings.FieldsSeq(dashboardSummaries) {
		for _, n := range []string{name + `{quantile="0.5"}`, name + "_sum", name + "_count", "zk_avg_" + name} {
			_, ok := lines[n]
			expect.That(t, ok, "%s is missing", n)
		}
	}
	for name, want := range map[string]string{
		"znode_count":                               "31",
		"zk_znode_count":                            "31",
		"proposal_count":                            "15",
		`updatelatency{quantile="0.99"}`:            "28.12346",
		"updatelatency_sum":                         "281",
		"zk_p99_updatelatency":                      "28.1235",
		"synced_followers":                          "2",
		"zk_server_leader":                          "1",
		`zk_server_state{state="leader"}`:           "1",
		`zk_version{version="3.9.3-zlockd-1.2.0"}`:  "1",
		`write_per_namespace_count{key="my app"}`:   "2",
		"zlockd_peer_insecure":                      "1",
		`zlockd_session_ends_total{cause="closed"}`: "7",
		"zlockd_serving":                            "1",
	} {
		expect.Equal(t, lines[name], want, "%s is %q", name, lines[name])
	}
	for _, prefix := range []string{"go_goroutines", "process_open_fds"} {
		_, ok := lines[prefix]
		expect.That(t, ok, "%s is missing", prefix)
	}

	f.status = standalone()
	f.status.Serving = false
	if body := get(t, h, "/metrics").Body.String(); !strings.Contains(body, "\nzlockd_serving 0\n") ||
		strings.Contains(body, "zk_server_state") {
		t.Error("metrics without service are wrong")
	}
}

// Each metric in testdata/leader.metrics still exists, with the same value unless it describes this process.
func TestMetricsKeepTheirNames(t *testing.T) {
	own := regexp.MustCompile(`^(go_|process_|promhttp_)`)
	varies := regexp.MustCompile(`^((jvm_info|zlockd_build_info)\{.*\}|jvm_\S+(?: \S+)*) \S+$`)
	var b strings.Builder
	body := get(t, newAdmin(t, &fake{status: ensemble()}, "").Handler(), "/metrics").Body.String()
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if line[0] == '#' || own.MatchString(line) {
			continue
		}
		if m := varies.FindStringSubmatch(line); m != nil {
			line = cmp.Or(m[2], m[1])
		}
		b.WriteString(line + "\n")
	}
	golden(t, "leader.metrics", []byte(b.String()))
}

// A measure is a gauge, a counter (its name ends in _total) or a histogram. Text may be invalid UTF-8.
func TestMeasuresOfOtherPackagesAreShown(t *testing.T) {
	s := standalone()
	s.Measure("things", "Things.", 2.5, report.Pair{Key: "kind", Value: "a\xff"})
	s.Measure("things_total", "All things.", 3)
	s.Extra = append(s.Extra, report.Sample{Name: "waits", Help: "Waits.",
		Histogram: &report.Histogram{Count: 3, Sum: 4.5, Buckets: map[float64]uint64{1: 1, 2: 2}}})
	body := get(t, newAdmin(t, &fake{status: s}, "").Handler(), "/metrics").Body.String()
	for _, line := range []string{"zlockd_things{kind=\"a\uFFFD\"} 2.5", "# TYPE zlockd_things gauge",
		"zlockd_things_total 3", "# TYPE zlockd_things_total counter", `zlockd_waits_bucket{le="1"} 1`,
		`zlockd_waits_bucket{le="2"} 2`, `zlockd_waits_bucket{le="+Inf"} 3`, "zlockd_waits_sum 4.5",
		"zlockd_waits_count 3"} {
		expect.Has(t, body, "\n"+line+"\n")
	}
}

// If too many requests already ask other servers, or if there are no other servers, /members shows what this
// server itself knows.
func TestMembersOfAServerThatAsksNobody(t *testing.T) {
	s := ensemble()
	s.Serving, s.Reason = false, "no leader yet"
	a := newAdmin(t, &fake{status: s}, "")
	body := func() string { return get(t, a.Handler(), "/members").Body.String() }
	expect.Has(t, body(), `"applied" : 70`)
	a.asks.Wait = time.Millisecond
	for range port.Places {
		release, _ := a.asks.Acquire()
		defer release()
	}
	got := body()
	for _, want := range []string{`"reason" : "no leader yet"`, `"peer" : "127.0.0.1:22312"`, `"v" : 1`,
		`"applied" : 12`} {
		expect.Has(t, got, want)
	}
	alone := get(t, newAdmin(t, &fake{status: standalone()}, "").Handler(), "/members").Body.String()
	expect.Has(t, alone, `"members" : { }`)
	expect.That(t, !strings.Contains(alone, `"reason" : "n`), "%s", alone)
}

func TestConfigurationFileIsNamed(t *testing.T) {
	s := standalone()
	s.Config.File = "/etc/zlockd.conf"
	expect.Has(t, get(t, newAdmin(t, &fake{status: s}, "").Handler(), "/commands/icfg").Body.String(),
		`"initial_configuration" : "/etc/zlockd.conf"`)
}

func TestProfilingOnlyWhenAskedFor(t *testing.T) {
	f := &fake{status: standalone()}
	expect.Equal(t, get(t, newAdmin(t, f, "").Handler(), "/debug/pprof/cmdline").Code, 404, "off")
	a := must.Get(New(Options{Source: f, Profiling: true}))(t)
	expect.Equal(t, get(t, a.Handler(), "/debug/pprof/cmdline").Code, 200, "on")
}

func TestPagesAreMounted(t *testing.T) {
	a := must.Get(New(Options{Source: &fake{status: standalone()}, Pages: map[string]http.Handler{
		"/locks": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }),
	}}))(t)
	if w := get(t, a.Handler(), "/locks"); w.Body.String() != "{}" ||
		w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%s %v", w.Body, w.Header())
	}
}

func TestBusyCommandsAreRefused(t *testing.T) {
	f := &fake{status: standalone(), delay: make(chan struct{})}
	a := newAdmin(t, f, "")
	a.heavy.Wait = time.Millisecond
	for range port.Places {
		release, _ := a.heavy.Acquire()
		defer release()
	}
	w := get(t, a.Handler(), "/commands/watches")
	expect.That(t, w.Code == 503 && json.Valid(w.Body.Bytes()), "%d %s", w.Code, w.Body)
}

func TestAnswersOverARealConnection(t *testing.T) {
	a := newAdmin(t, &fake{status: standalone()}, "")
	s := httptest.NewUnstartedServer(nil)
	s.Config = a.HTTPServer()
	s.Start()
	defer s.Close()
	r := must.Get(http.Get(s.URL + "/commands/watch_summary"))(t)
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	want, _ := os.ReadFile("testdata/standalone.watch_summary.json")
	expect.Equal(t, string(body), string(want), "got %s", body)
}

func TestMembersAreChangedOnlyByAnAuthorizedPost(t *testing.T) {
	for _, test := range []struct {
		method, login, body string
		code, changes       int
	}{
		{"PUT", "digest super:x", `{"op":"add"}`, 405, 0},
		{"POST", "", `{"op":"add"}`, 401, 0},
		{"POST", "digest super:y", `{"op":"add"}`, 403, 0},
		{"POST", "digest super:x", `op=add`, 400, 0},
		{"POST", "digest super:x", `{"op":"add","evil":1}`, 400, 0},
		{"POST", "digest super:x", `{"op":"add","id":4,"addr":"lock4:2888"} {"op":"remove","id":1}`, 400, 0},
		{"POST", "digest super:x", `{"op":"add","id":4,"addr":"lock4:2888"}}`, 400, 0},
		{"POST", "digest super:x", `{"op":"` + strings.Repeat("x", maxChange) + `"}`, 400, 0},
		{"POST", "digest super:x", `{"id":4}`, 409, 1},
		{"POST", "digest super:x", `{"op":"add","id":4,"addr":"lock4:2888"}` + "\n", 200, 1},
	} {
		f := &fake{status: ensemble()}
		a := must.Get(New(Options{Source: f, Authorize: func(user, password string) bool {
			return user == "super" &&
				password == "x"
		}}))(t)
		r := httptest.NewRequest(test.method, "/members", strings.NewReader(test.body))
		if test.login != "" {
			r.Header.Set("Authorization", test.login)
		}
		w := do(t, a.Handler(), r)
		var answer struct{ Error *string }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil ||
			(answer.Error == nil) != (test.code == 200) {
			t.Errorf("%s %.40s answers %s", test.method, test.body, w.Body)
		}
		expect.That(t, w.Code == test.code && len(f.changes) == test.changes,
			"%s %.40s as %q: %d, %d changes", test.method, test.body, test.login, w.Code, len(f.changes))
	}
}

func TestMembersListsThoseWithoutAVoteToo(t *testing.T) {
	s := ensemble()
	s.Members = []status.Member{{ID: 1, Peer: "h1:2888", Client: "h1:2181", Voter: true},
		{ID: 4, Peer: "h4:2888"}}
	a := must.Get(New(Options{Source: &fake{status: s}}))(t)
	w := do(t, a.Handler(), httptest.NewRequest("GET", "/members", nil))
	var got struct {
		Members map[string]struct {
			Peer, Client string
			Voter        bool
			Applied, Lag int64
			Bytes        *int64 `json:"lag_bytes"`
			Heard        *int64 `json:"heard_ms"`
			Version      string
			Waits        string
		}
	}
	err := json.Unmarshal(w.Body.Bytes(), &got)
	must.That(t, err == nil && w.Code == 200, "%d %v: %s", w.Code, err, w.Body)
	if m := got.Members; len(m) != 2 || !m["1"].Voter || m["1"].Client != "h1:2181" || m["4"].Voter ||
		m["4"].Peer != "h4:2888" {
		t.Errorf("%s", w.Body)
	}
	one, four := got.Members["1"], got.Members["4"]
	expect.That(t, one.Applied == 70 && one.Heard != nil && *one.Heard == 0 && one.Version == "1.1",
		"how far server 1 is: %s", w.Body)
	expect.That(t, four.Lag == 10 && four.Bytes == nil && four.Heard == nil && four.Waits == "refused",
		"how far server 4 is: %s", w.Body)
}

// The operation "check" needs the super user's password, because it makes this server connect to an address.
func TestCheckOfAMemberIsForTheSuperUser(t *testing.T) {
	a := must.Get(New(Options{Source: &fake{status: ensemble()}, Authorize: func(user, password string) bool {
		return user == "super" && password == "x"
	}}))(t)
	for _, test := range []struct {
		login, body string
		code        int
		want        string
	}{
		{"", `{"op":"check","id":4,"addr":"h:1"}`, 401, ""},
		{"digest super:x", `{"op":"check","id":4,"addr":"h:1"}`, 200, `"waits" : "to be let in"`},
		{"digest super:x", `{"op":"check","id":4,"addr":"h:1"}`, 200, `"at" : "h:1"`},
		{"digest super:x", `{"op":"check","id":4,"addr":"h:1"}`, 200, `"known" : false`},
		{"digest super:x", `{"op":"check","id":4}`, 409, `"error" : "nowhere"`},
	} {
		r := httptest.NewRequest("POST", "/members", strings.NewReader(test.body))
		if test.login != "" {
			r.Header.Set("Authorization", test.login)
		}
		if w := do(t, a.Handler(), r); w.Code != test.code || !strings.Contains(w.Body.String(), test.want) ||
			!strings.Contains(w.Body.String(), `"v" : 1`) {
			t.Errorf("%s as %q: %d %s", test.body, test.login, w.Code, w.Body)
		}
	}
}

// Answers that only zlockd gives, and not ZooKeeper, keep their form.
func TestOwnAnswersKeepTheirForm(t *testing.T) {
	s := ensemble()
	s.Faults, s.Notices, s.Cluster = []string{"the disk is full"}, []string{"servers talk in the clear"}, "abc"
	a := must.Get(New(Options{Source: &fake{status: s}, Authorize: func(string, string) bool { return true }}))(
		t)
	for _, c := range []struct{ name, method, path, body string }{
		{"health", "GET", "/health", ""},
		{"ready", "GET", "/ready", ""},
		{"members", "GET", "/members", ""},
		{"members.check", "POST", "/members", `{"op":"check","id":4,"addr":"h:1"}`},
		{"members.refused", "POST", "/members", `{"op":"check","id":4}`},
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		r.Header.Set("Authorization", "digest super:x")
		golden(t, "own."+c.name+".json", do(t, a.Handler(), r).Body.Bytes())
	}
}

// The answer to a job has a line for each step, and the last line has the result.
func TestJobAnswersStepByStep(t *testing.T) {
	a := must.Get(New(Options{Source: &fake{status: ensemble()}, Authorize: func(string, string) bool {
		return true
	}}))(t)
	for body, want := range map[string]string{
		`{"op":"lead","id":3,"wait":true}`: `{"kind":"started"}
{"kind":"leads","text":"server 3 leads"}
{"done":true}
`,
		`{"op":"replace","id":9,"wait":true}`: `{"kind":"started"}
{"done":true,"error":"server 9 is not a member; add it: zlock member add 9 HOST:PORT","code":"not_member"}
`} {
		r := httptest.NewRequest("POST", "/members", strings.NewReader(body))
		r.Header.Set("Authorization", "digest super:x")
		w := do(t, a.Handler(), r)
		expect.That(t, w.Body.String() == want && w.Code == 200, "%s: %d %s", body, w.Code, w.Body)
	}
}

// The name of another site may resolve to this server. Requests from pages of that site get no answer.
func TestStrangeHostsAreRefused(t *testing.T) {
	s := ensemble()
	s.Members[0].Peer = "Lock1.example:2888"
	a := must.Get(New(Options{Source: &fake{status: s}, Hosts: []string{"locks.example"}, Profiling: true,
		Pages: map[string]http.Handler{"/locks": http.NotFoundHandler()}}))(t)
	hosts := map[string]bool{"evil.example": false, "evil.example:8080": false, "localhost:1": true,
		"127.0.0.1": true, "[::1]:8080": true,
		"lock1.example:8181": true, "LOCKS.example.": true}
	for _, path := range []string{"/commands", "/commands/dump", "/members", "/metrics", "/debug/pprof/cmdline",
		"/health", "/ready", "/locks", "/nope"} {
		for host, known := range hosts {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = host
			w := do(t, a.Handler(), r)
			if told := w.Code != http.StatusMisdirectedRequest; told != (known || path == "/health" ||
				path == "/ready") {
				t.Errorf("%s as %s: %d %.200s", path, host, w.Code, w.Body)
			}
		}
	}
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Host = "evil.example"
	expect.Equal(t, do(t, a.MetricsServer().Handler, r).Code, http.StatusMisdirectedRequest,
		"the metrics port")
	// Only the program's name is shown: the other arguments may have the hash of the super user's password.
	if w := get(t, a.Handler(), "/debug/pprof/cmdline"); w.Body.String() != os.Args[0] {
		t.Errorf("command line: %q", w.Body)
	}
}

// Two samples can have one name and one key. Two paths that are not UTF-8 may look the same when they are
// shown, and a program may report a measure twice. The metrics show all other samples all the same.
func TestSamplesOfOneNameDoNotSpoilTheMetrics(t *testing.T) {
	var m metrics.Set
	s := report.Status{Now: at}
	for _, path := range []string{"/\xff/x", "/\xfe/y", "/\xff\xfe", "/app\xff", "/app"} {
		m.Writes.Observe(path, 1)
	}
	s.Fill(&m, report.NeedMetrics)
	s.Measure("twice", "Twice.", 1)
	s.Measure("twice", "Twice.", 2)
	w := get(t, newAdmin(t, &fake{status: s}, "").Handler(), "/metrics")
	expect.Equal(t, w.Code, 200)
	for _, line := range []string{"write_per_namespace_count{key=\"\uFFFD\"} 3",
		"write_per_namespace_count{key=\"app\uFFFD\"} 1", "write_per_namespace_count{key=\"app\"} 1",
		"zlockd_twice 1"} {
		expect.Has(t, w.Body.String(), "\n"+line+"\n")
	}
}
