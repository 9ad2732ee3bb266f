package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var update = flag.Bool("update", false, "write the golden files")

// fake is a Source of hand-made values.
type fake struct {
	mu            sync.Mutex
	status        report.Status
	resets, conns int
	asked         report.Need
	changes       []change.Change
	delay         chan struct{} // if not nil, Status waits for this channel
}

func (f *fake) Status(n report.Need) *report.Status {
	if f.delay != nil {
		<-f.delay
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = n
	s := f.status
	return &s
}

func (f *fake) ResetStats() { f.mu.Lock(); f.resets++; f.mu.Unlock() }
func (f *fake) ResetConns() { f.mu.Lock(); f.conns++; f.mu.Unlock() }

func (f *fake) ChangeMember(_ context.Context, c change.Change) error {
	f.changes = append(f.changes, c)
	if c.Op == "" {
		return errors.New("no such change")
	}
	return nil
}

func (f *fake) Members(context.Context) (*status.Members, error) {
	all := map[uint32]status.Member{}
	for _, m := range f.status.Members {
		m.Progress = status.Progress{Applied: 70, Heard: status.Ago(0), LagBytes: new(int64), Version: "1.1"}
		if !m.Voter {
			m.Progress = status.Progress{Applied: 60, Lag: 10, Waits: "refused"}
		}
		all[m.ID] = m
	}
	return &status.Members{ID: f.status.ID, Leader: f.status.Leader, Cluster: f.status.Cluster, Members: all},
		nil
}

func (f *fake) Probe(_ context.Context, id uint32, addr string) (*status.Found, error) {
	if addr == "" {
		return nil, errors.New("nowhere")
	}
	return &status.Found{At: addr, Progress: status.Progress{Heard: status.Ago(0), LagBytes: new(int64),
		Waits: "to be let in"}}, nil
}

func newAdmin(t *testing.T, f *fake, whitelist string) *Admin {
	t.Helper()
	a := must.Get(New(Options{Source: f, Whitelist: whitelist}))(t)
	return a
}

// `at` is the time of all samples: Sat Nov 21 01:23:56 UTC 2026.
var at = time.Date(2026, 11, 21, 1, 23, 56, 0, time.UTC)

// standalone is a single server with two clients.
func standalone() report.Status {
	return report.Status{
		Version: "3.9.3-zlockd-1.2.0",
		Built:   time.Date(2022, 2, 25, 8, 49, 0, 0, time.UTC),
		Now:     at,
		Uptime:  900 * time.Second,
		Node: status.Node{
			Serving: true, ID: 1, Term: 2, Zxid: 0x81,
			Snapshot: status.Snapshot{Zxid: 0x200000003, Time: time.Unix(1795224230, 0)},
		},
		Mode: report.Standalone,

		Nodes:          31,
		EphemeralCount: 1,
		DataSize:       248,
		Sessions:       2,
		WatchConns:     2,
		WatchPaths:     2,
		Watches:        3,
		AllWatches:     4,
		Digests:        []report.Digest{{Zxid: 128, Digest: 59093131102, Version: 2}},

		Conns:     3,
		Received:  193,
		Sent:      241,
		Latency:   metrics.Latency{Min: 0, Max: 30, Avg: 1.81774},
		Responses: metrics.Sizes{Last: -1, Min: -1, Max: -1},
		Proposals: metrics.Sizes{Last: 48, Min: 36, Max: 100},
		OpenFiles: 55,
		MaxFiles:  20000,

		Config: report.Config{
			ClientPort: 22200, SecurePort: -1,
			DataDir: "/var/lib/zookeeper/version-2", LogDir: "/var/lib/zookeeper/version-2",
			TickTime: 2 * time.Second, MaxClientCnxns: 60,
			MinSessionTimeout: 4 * time.Second, MaxSessionTimeout: 40 * time.Second,
			ListenBacklog: -1,
		},
		Environment: []report.Pair{{Key: "host.name", Value: "localhost"}, {Key: "os.name", Value: "Linux"}},

		DataDirSize: 67109337,
		LogDirSize:  67109337,
		ConnList: []report.Conn{
			{
				Addr: "127.0.0.1:46426", Interest: 1, Received: 7, Sent: 7, Session: 0x100000ae0210023, LastOp: "ADDW",
				Established: time.UnixMilli(1795224234849), Timeout: 10 * time.Second, Expires: at.Add(10 * time.Second),
				LastCxid: 6, LastZxid: 0x80, LastReply: 903747 * time.Millisecond,
				Latency: metrics.Latency{Min: 0, Max: 2, Avg: 1.4},
			},
			{Addr: "127.0.0.1:46502", Received: 1, Established: at, Expires: at.Add(9 * time.Second), LastCxid: -1,
				LastZxid: -1},
			{
				Addr: "[::1]:46442", Interest: 1, Received: 3, Sent: 3, Session: 0x100000ae0210024,
				Established: time.UnixMilli(1795224234866), Timeout: 30 * time.Second, Expires: at.Add(30 * time.Second),
				LastCxid: -1, LastZxid: -1,
			},
		},
		SessionList: []report.Session{
			{ID: 0x100000ae0210023, Timeout: 10 * time.Second, Expires: at.Add(9500 * time.Millisecond)},
			{ID: 0x100000ae0210024, Timeout: 30 * time.Second, Expires: at.Add(29 * time.Second)},
		},
		Ephemerals: []report.SessionPaths{{Session: 0x100000ae0210023, Paths: []string{"/cap/e22200"}}},
		WatchList: []report.SessionPaths{
			{Session: 0x100000ae0210023, Paths: []string{"/capmissing", "/cap"}},
			{Session: 0x100000ae0210024, Paths: []string{"/cap"}},
		},
		Counters: map[string]int64{"proposal_count": 15, "connection_request_count": 4},
		Summaries: map[string]metrics.Summary{
			"election_time": {Count: 3, Sum: 28001, Min: 140, Max: 27606},
			"updatelatency": {Count: 114, Sum: 281, Min: 0, Max: 30, P50: 1, P90: 6, P95: 9, P99: 28.12346, P999: 30},
		},
		Keyed: map[string]map[string]metrics.Summary{"write_per_namespace": {"my app": {
			Count: 2, Sum: 30, Min: 10, Max: 20,
			P50: 10}}},
		Extra: []report.Sample{
			{Name: "peer_insecure", Help: "1 if peers talk in the clear.", Value: 1},
			{Name: "session_ends_total", Help: "Sessions ended.",
				Labels: []report.Pair{{Key: "cause", Value: "closed"}}, Value: 7},
		},
	}
}

// ensemble is the status of the third of three servers. It leads.
func ensemble() report.Status {
	s := standalone()
	s.Mode, s.ID, s.Leader, s.LeaderAddr = report.Leader, 3, 3, "127.0.0.1:22313"
	s.Leads = 6334 * time.Millisecond
	s.Zxid = 0x30000000c
	s.Synced = 2
	s.Config.PeerPort = 22313
	s.Members = []status.Member{
		{ID: 1, Peer: "127.0.0.1:22311", Client: "", Voter: true},
		{ID: 2, Peer: "127.0.0.1:22312", Client: "", Voter: true},
		{ID: 3, Peer: "127.0.0.1:22313", Client: "127.0.0.1:22203", Voter: true},
	}
	for i := range s.Members {
		s.Members[i].Applied = 0xc // the leader hears from every member
	}
	s.ConfigIndex = 0x1a
	return s
}

// follower is the status of the ensemble in ensemble(), as another server shows it.
func follower() report.Status {
	s := ensemble()
	s.Mode, s.ID = report.Follower, 1
	for i := range s.SessionList {
		s.SessionList[i].Expires = time.Time{}
	}
	return s
}

// golden compares `got` with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		must.OK(t, os.WriteFile(file, got, 0o644))
	}
	want := must.Get(os.ReadFile(file))(t)
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

func TestStringsStayJSON(t *testing.T) {
	for _, s := range []string{"", "/a/b", `"\`, "\n\r\t\b\f", "\x00\x1f\x7f", "é€😀", "\xff\xfe", "</script>"} {
		var b strings.Builder
		w := bufio.NewWriter(&b)
		(&jsonWriter{w: w}).string(s)
		w.Flush()
		var back string
		if err := json.Unmarshal([]byte(b.String()), &back); err != nil {
			t.Errorf("%q gives %s: %v", s, b.String(), err)
		} else if want := strings.ToValidUTF8(s, "\uFFFD"); back != want && strings.ToValidUTF8(s, "") == s {
			t.Errorf("%q comes back as %q", s, back)
		}
	}
}

func TestEmptyContainers(t *testing.T) {
	var b strings.Builder
	d := object{{"d", 1}}
	must.OK(t, writeJSON(&b, object{{"a", []int64(nil)}, {"b", object{}}, {"c", slices.Values([]object{d, d})}}))
	const want = "{\n  \"a\" : [ ],\n  \"b\" : { },\n  \"c\" : [ {\n    \"d\" : 1\n  }, {\n    \"d\" : 1\n  " +
		"} ]\n}"
	expect.Equal(t, b.String(), want)
}

func TestAddressesAreJavas(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:1":          "/127.0.0.1:1",
		"[::1]:80":             "/[0:0:0:0:0:0:0:1]:80",
		"[fe80::a:b%eth0]:80":  "/[fe80:0:0:0:0:0:a:b%eth0]:80",
		"[::ffff:10.0.0.1]:80": "/10.0.0.1:80",
		"pipe":                 "/pipe",
	} {
		expect.Equal(t, javaAddr(addr), want, "%s prints as", addr)
	}
}
