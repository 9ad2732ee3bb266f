package server

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/clients"
	"github.com/zlockd/zlockd/test/expect"
)

func TestStatusTellsWhatIsThere(t *testing.T) {
	i, c := start(t, Options{Version: "1.2.3", Clients: clients.Options{SkipACL: true}})
	create(t, c, "/a", 0)
	create(t, c, "/a/b", jute.FlagEphemeral)

	s := i.Status(admin.NeedConns | admin.NeedSessions | admin.NeedEphemerals | admin.NeedWatches | admin.NeedMetrics | admin.NeedProcess)
	if !s.Serving || s.Mode != admin.Standalone || s.Version != "3.9.3-zlockd-1.2.3" || s.Nodes != 6 ||
		s.EphemeralCount != 1 || s.Sessions != 1 {
		t.Errorf("status %+v", s)
	}
	if len(s.ConnList) != 1 || len(s.SessionList) != 1 || s.SessionList[0].ID != s.ConnList[0].Session {
		t.Fatalf("connections %+v, sessions %+v", s.ConnList, s.SessionList)
	}
	if left := s.SessionList[0].Expires.Sub(s.Now); left <= 0 || left > s.SessionList[0].Timeout+time.Second {
		t.Errorf("the session has %v left", left)
	}
	if len(s.Ephemerals) != 1 || s.Ephemerals[0].Session != s.ConnList[0].Session ||
		len(s.Ephemerals[0].Paths) != 1 || s.Ephemerals[0].Paths[0] != "/a/b" {
		t.Errorf("ephemerals %+v", s.Ephemerals)
	}
	expect.Equal(t, len(s.Notices), 1, "unchecked access rights must be told: %q", s.Notices)
	if s.Summaries["updatelatency"].Count != 2 || s.OpenFiles < 3 || len(s.Environment) == 0 {
		t.Errorf("updates %+v, %d files, environment %v", s.Summaries["updatelatency"], s.OpenFiles, s.Environment)
	}
	if brief := i.Status(0); brief.ConnList != nil || brief.SessionList != nil || brief.Counters != nil ||
		brief.Environment != nil {
		t.Error("parts were gathered that nobody asked for")
	}

	i.ResetStats()
	if s := i.Status(0); s.Sent != 0 || s.Latency != (admin.Latency{}) {
		t.Errorf("after a reset: %+v", s)
	}
}

func TestStatusLooksAtTheDiskOnlyWhenAsked(t *testing.T) {
	i, c := start(t, Options{Raft: raftfsm.Options{DataDir: t.TempDir()}})
	create(t, c, "/a", 0)
	brief := i.Status(0)
	expect.That(t, brief.LogDirSize == 0 && brief.DataDirSize == 0,
		"the data directory was walked: log %d, snapshots %d", brief.LogDirSize, brief.DataDirSize)
	if brief.Leads <= 0 || brief.Commit < brief.Applied || brief.Applied == 0 || brief.Last < brief.Commit {
		t.Errorf("led for %v, log %d, committed %d, applied %d", brief.Leads, brief.Last, brief.Commit,
			brief.Applied)
	}
	if s := i.Status(admin.NeedDirs); s.LogDirSize == 0 {
		t.Error("no log on disk")
	}
	for _, x := range i.Status(admin.NeedMetrics | admin.NeedDirs).Extra {
		expect.That(t, x.Name != "log_bytes" || x.Value != 0, "log_bytes is 0")
	}
}

func TestOnlyTheSuperUserMayChangeState(t *testing.T) {
	expect.That(t, Authorizer("") == nil, "without a super user nobody can be asked for")
	may := Authorizer("super:D/InIHSb7yEEbrWz8b9l71RjZJU=") // super:test
	for _, who := range []struct {
		user, password string
		ok             bool
	}{{"super", "test", true}, {"super", "Test", false}, {"super", "", false}, {"", "test", false},
		{"root", "test", false}} {
		expect.Equal(t, may(who.user, who.password), who.ok,
			"%s:%s: %v expected", who.user, who.password, who.ok)
	}
}
