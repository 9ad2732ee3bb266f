package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/golden"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// get returns the body of a page.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: time.Minute}
	resp := must.Get(client.Get(url))(t)
	defer resp.Body.Close()
	b := must.Get(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(b)
}

func TestMetricsHaveAPortOfTheirOwn(t *testing.T) {
	t.Parallel()
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0", MetricsAddr: "127.0.0.1:0"})
	for _, addr := range []string{i.AdminAddr(), i.MetricsAddr()} {
		code, text := get(t, "http://"+addr+"/metrics")
		expect.Equal(t, code, http.StatusOK, "%s: exit code", addr)
		expect.Has(t, text, "\nznode_count ", "%s: text", addr)
		for _, name := range []string{"jvm_threads_current", `jvm_memory_bytes_used{area="heap"}`,
			`jvm_memory_bytes_max{area="heap"}`,
			`jvm_memory_pool_bytes_used{pool="Heap objects"}`, `jvm_gc_collection_seconds_sum{gc="Go"}`} {
			expect.Has(t, text, "\n"+name+" ", "%s: %s is missing", addr, name)
		}
	}
	if code, _ := get(t, "http://"+i.MetricsAddr()+"/commands"); code != http.StatusNotFound {
		t.Errorf("the metrics port serves other pages: %d", code)
	}
	j, _ := start(t, Options{AdminAddr: "127.0.0.1:0", NoJVM: true})
	if _, text := get(t, "http://"+j.AdminAddr()+"/metrics"); strings.Contains(text, "jvm_threads") {
		t.Error("jvm_ metrics although switched off")
	}
	must.OK(t, i.Close(context.Background()))
	expect.Fails(t, expect.Err(http.Get("http://"+i.MetricsAddr()+"/metrics")),
		"the metrics port outlives its server")
}

// checkMetricsTable compares the table of our own metrics in docs/reference/metrics.md
// with the help texts of the pages.
func checkMetricsTable(t *testing.T, pages []string) {
	t.Helper()
	rows := map[string]string{}
	for _, text := range pages {
		for _, m := range regexp.MustCompile(`(?m)^# HELP (zlockd_\w+) (.*)$`).FindAllStringSubmatch(text, -1) {
			name, labels := m[1], ""
			if l := regexp.MustCompile(`(?m)^` + name + `(?:_sum)?\{(.*?)\} `).FindStringSubmatch(text); l != nil {
				names := regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`).ReplaceAllString(l[1], "$1")
				labels = "{" + names + "}"
			}
			rows[name] = fmt.Sprintf("| `%s%s` | %s |\n", name, labels, m[2])
		}
	}
	var table strings.Builder
	table.WriteString("| metric | |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		table.WriteString(rows[name])
	}
	golden.Table(t, "../docs/reference/metrics.md", "go test ./server -run EveryMetric -update-docs",
		table.String())
}

func TestStatusTellsWhatIsThere(t *testing.T) {
	t.Parallel()
	i, c := start(t, Options{Version: "1.2.3", SkipACL: true})
	create(t, c, "/a", 0)
	create(t, c, "/a/b", jute.FlagEphemeral)

	s := i.Status(report.NeedConns | report.NeedSessions | report.NeedEphemerals | report.NeedWatches |
		report.NeedMetrics | report.NeedProcess)
	expect.That(t, s.Serving, "status %+v", s)
	expect.Equal(t, s.Mode, report.Standalone, "status: mode")
	expect.Equal(t, s.Version, "3.9.3-zlockd-1.2.3", "status: version")
	expect.Equal(t, s.Nodes, 6, "status: nodes")
	expect.Equal(t, s.EphemeralCount, 1, "status: ephemeral nodes")
	expect.Equal(t, s.Sessions, 1, "status: sessions")
	must.Equal(t, len(s.ConnList), 1, "connections %v", s.ConnList)
	must.Equal(t, len(s.SessionList), 1, "sessions %v", s.SessionList)
	must.Equal(t, s.SessionList[0].ID, s.ConnList[0].Session, "the session of the connection")
	if left := s.SessionList[0].Expires.Sub(s.Now); left <= 0 || left > s.SessionList[0].Timeout+time.Second {
		t.Errorf("the session has %v left", left)
	}
	if expect.Equal(t, len(s.Ephemerals), 1, "ephemerals: %v", s.Ephemerals) {
		expect.Equal(t, s.Ephemerals[0].Session, s.ConnList[0].Session, "ephemerals: session")
		if expect.Equal(t, len(s.Ephemerals[0].Paths), 1, "ephemerals: number of paths") {
			expect.Equal(t, s.Ephemerals[0].Paths[0], "/a/b", "ephemerals: paths")
		}
	}
	expect.Equal(t, len(s.Notices), 1, "unchecked access rights must be told: %q", s.Notices)
	expect.Equal(t, s.Summaries["updatelatency"].Count, 2, "updates: count")
	expect.That(t, s.OpenFiles >= 3, "updates %+v, %d files, environment %v", s.Summaries["updatelatency"],
		s.OpenFiles, s.Environment)
	expect.That(t, len(s.Environment) != 0, "updates %+v, %d files, environment %v",
		s.Summaries["updatelatency"], s.OpenFiles, s.Environment)
	brief := i.Status(0)
	expect.That(t, brief.ConnList == nil, "the connections were gathered without a request")
	expect.That(t, brief.SessionList == nil, "the sessions were gathered without a request")
	expect.That(t, brief.Counters == nil, "the counters were gathered without a request")
	expect.That(t, brief.Environment == nil, "the environment was gathered without a request")

	i.ResetStats()
	s = i.Status(0)
	expect.Equal(t, s.Sent, 0, "after a reset: sent")
	expect.Equal(t, s.Latency, metrics.Latency{}, "after a reset: latency")
}

func TestStatusLooksAtTheDiskOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	i, c := start(t, Options{DataDir: t.TempDir()})
	create(t, c, "/a", 0)
	brief := i.Status(0)
	expect.Equal(t, brief.LogDirSize, 0, "the data directory was walked: LogDirSize")
	expect.Equal(t, brief.DataDirSize, 0, "the data directory was walked: DataDirSize")
	expect.That(t, brief.Leads > 0, "it leads for %v", brief.Leads)
	expect.That(t, 0 < brief.Applied && brief.Applied <= brief.Commit && brief.Commit <= brief.Last,
		"applied %d, committed %d, log %d: want them in ascending order", brief.Applied, brief.Commit, brief.Last)
	s := i.Status(report.NeedDirs)
	expect.That(t, s.LogDirSize != 0, "no log on disk")
	for _, x := range i.Status(report.NeedMetrics | report.NeedDirs).Extra {
		expect.That(t, x.Name != "log_bytes" || x.Value != 0, "log_bytes is 0")
	}
}

const superDigest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=" // super:test

func TestOnlyTheSuperUserMayChangeState(t *testing.T) {
	t.Parallel()
	expect.That(t, new(Instance).authorize() == nil, "without a super user nobody can be asked for")
	may := (&Instance{o: Options{SuperDigest: superDigest}}).authorize()
	for _, who := range []struct {
		user, password string
		ok             bool
	}{{"super", "test", true}, {"super", "Test", false}, {"super", "", false}, {"", "test", false},
		{"root", "test", false}} {
		expect.Equal(t, may(who.user, who.password), who.ok,
			"%s:%s: %v expected", who.user, who.password, who.ok)
	}
}

// ensemble is a cluster in this process that keeps its data on disk.
type ensemble struct {
	t       *testing.T
	peers   map[uint32]string
	dirs    map[uint32]string
	servers map[uint32]*Instance
	log     *slog.Logger
	more    []func(*Options)
}

func newEnsemble(t *testing.T, n int, log *slog.Logger, more ...func(*Options)) *ensemble {
	t.Helper()
	e := &ensemble{t: t, log: log, more: more, peers: map[uint32]string{}, dirs: map[uint32]string{},
		servers: map[uint32]*Instance{}}
	for i, addr := range must.Get(cluster.FreePorts(n))(t) {
		e.peers[uint32(i+1)], e.dirs[uint32(i+1)] = addr, t.TempDir()
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for id := range e.peers {
		wg.Go(func() {
			i, err := e.start(id)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			e.servers[id] = i
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, i := range e.servers {
			i.Close(context.Background())
		}
	})
	return e
}

func (e *ensemble) start(id uint32) (*Instance, error) {
	ctx, cancel := context.WithTimeout(e.t.Context(), time.Minute)
	defer cancel()
	o := Options{ID: id, ClientAddr: "127.0.0.1:0", Logger: e.log.With("server", id),
		Peers: e.peers, PeerInsecure: true, DataDir: e.dirs[id],
		// These timeouts are long enough to keep the leader, even on a busy machine.
		HeartbeatTimeout: 5 * time.Second, MinSessionTimeout: 7 * time.Second}
	for _, f := range e.more {
		f(&o)
	}
	i, err := Start(ctx, o)
	if err == nil {
		err = i.Ready(ctx)
	}
	return i, err
}

// restart starts a closed server again.
func (e *ensemble) restart(id uint32) *Instance {
	e.t.Helper()
	i := must.Get(e.start(id))(e.t)
	e.servers[id] = i
	return i
}

func (e *ensemble) leader() (uint32, *Instance) {
	e.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for id, i := range e.servers {
			if s := i.Status(0); s.Mode == report.Leader && s.Serving {
				return id, i
			}
		}
	}
	e.t.Fatal("nobody leads")
	return 0, nil
}

func (e *ensemble) write(i *Instance, prefix string, n int) {
	e.t.Helper()
	c := must.Get(wire.Open(i.ClientAddr()))(e.t)
	defer c.Close()
	for k := range n {
		create(e.t, c, fmt.Sprint(prefix, k), 0)
	}
}

// moved waits until a summary or counter of a server is not zero, and returns it.
func (e *ensemble) moved(i *Instance, name string) metrics.Summary {
	e.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		s := i.Status(report.NeedMetrics)
		v, ok := s.Summaries[name]
		if c := s.Counters[name]; !ok {
			v.Count = c
		}
		if v.Count > 0 {
			return v
		}
		if time.Now().After(end) {
			e.t.Fatalf("%s never moves", name)
		}
	}
}

// Each metric that operators rely on changes when its cause occurs.
func TestClusterMeasuresMove(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 3, slog.New(slog.DiscardHandler))
	first, led := e.leader()
	e.write(led, "/a", 20)
	for _, name := range []string{"proposal_count", "proposal_latency", "quorum_ack_latency",
		"propagation_latency", "unavailable_time",
		"leader_unavailable_time", "election_time", "sync_processor_batch_size", "sync_processor_queue_size",
		"fsynctime", "commit_count"} {
		e.moved(led, name)
	}
	for id, i := range e.servers {
		e.moved(i, "propagation_latency")
		e.moved(i, "election_time")
		if s := i.Status(0); id == first && (s.Proposals.Last <= 0 || s.Proposals.Min <= 0 ||
			s.Proposals.Max < s.Proposals.Min || s.Leads <= 0) {
			t.Errorf("the leader shows %+v, leading for %v", s.Proposals, s.Leads)
		}
		at := i.Status(0).Snapshot.Time
		expect.That(t, at.IsZero(), "server %d shows a snapshot of %v before the first", id, at)
	}

	// A snapshot is measured, and the status shows it until the next one.
	must.OK(t, led.Node().Snapshot())
	e.moved(led, "snapshottime")
	s := led.Status(0)
	expect.That(t, 0 < s.Snapshot.Zxid && s.Snapshot.Zxid <= s.Zxid, "zxid of the snapshot is %d, of the state %d",
		s.Snapshot.Zxid, s.Zxid)
	expect.That(t, time.Since(s.Snapshot.Time) <= time.Hour, "the snapshot is of %v", s.Snapshot.Time)
	e.write(led, "/b", 5)

	// The leader stops, and the other servers elect a new one.
	before := map[uint32]int64{}
	for id, i := range e.servers {
		before[id] = i.Status(report.NeedMetrics).Summaries["election_time"].Count
	}
	must.OK(t, led.Close(context.Background()))
	delete(e.servers, first)
	_, next := e.leader()
	for id, i := range e.servers {
		for end := time.Now().Add(time.Minute); i.Status(
			report.NeedMetrics).Summaries["election_time"].Count <= before[id]; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("server %d did not notice an election", id)
			}
		}
		e.moved(i, "looking_count")
	}
	e.moved(next, "leader_unavailable_time")

	// The server starts again. Its metrics show what it read at the start, including the snapshot.
	back := e.restart(first)
	e.write(next, "/c", 5)
	for _, name := range []string{"dbinittime", "startup_snap_load_time", "startup_txns_loaded",
		"startup_txns_load_time"} {
		e.moved(back, name)
	}
	got := back.Status(0)
	expect.Equal(t, got.Snapshot.Zxid, s.Snapshot.Zxid, "after a restart: zxid")
	expect.That(t, !got.Snapshot.Time.IsZero(), "after a restart: snapshot of zxid %d at %v, was %d",
		got.Snapshot.Zxid, got.Snapshot.Time, s.Snapshot.Zxid)
}
