package golden_test

import (
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/golden"
	"github.com/zlockd/zlockd/test/must"
)

// profiles are the zoo.cfg lines of the recorded server.
var profiles = map[string][]string{
	"default": {"tickTime=2000", "extendedTypesEnabled=false", "enforceQuota=false"},
	"extended": {"tickTime=500", "znode.container.checkIntervalMs=1000", "extendedTypesEnabled=true",
		"enforceQuota=true", cluster.Super("super:secret")},
	"ensemble": {"tickTime=1000", "reconfigEnabled=true", "standaloneEnabled=false"},
}

const readOnly = "readonlymode.enabled=true"

// The list timed names vectors with sessions of a second and nodes of 0.2 to 2.5 seconds. These may expire if
// a server or the replay pauses between two steps, so such a vector is replayed again.
var timed = []string{"session/session_expiry", "session/session_kept_by_any_request",
	"session/expired_after_drop", "ttl_container/ttl_expiry", "ttl_container/ttl_kept_by_children",
	"ttl_container/ttl_reset_by_setdata"}

// zlockd sends the recorded bytes as answers, except where the table of deviations lists another answer.
func TestZlockdMatchesRecording(t *testing.T) {
	t.Parallel()
	for profile, config := range profiles {
		t.Run(profile, func(t *testing.T) {
			if testing.Short() && profile == "extended" {
				t.Skip("waits for nodes and sessions to end: 25 s")
			}
			t.Parallel()
			e := prepare(t, cluster.Options{Dev: profile != "ensemble", Config: config})
			if profile == "ensemble" {
				e.Servers[0].Args = append(e.Servers[0].Args, "--peers", "1="+e.Servers[0].Peer)
			}
			must.OK(t, e.StartAll())
			replayAll(t, profile, e.Addrs(), golden.Deviations, timed...)
		})
	}
	t.Run("readonly", func(t *testing.T) {
		t.Parallel()
		e := prepare(t, cluster.Options{Nodes: 3, Config: []string{readOnly}})
		alone := e.Servers[0] // the only server of the ensemble that is started
		must.OK(t, alone.Spawn())
		must.Await(t, "not in read-only mode", time.Minute, func() bool {
			return alone.Word("isro") == "ro"
		})
		replayAll(t, "readonly", alone.Client, golden.Deviations)
	})
}

// prepare() lays out a zlockd that ends with the test.
func prepare(t *testing.T, o cluster.Options) *cluster.Ensemble {
	t.Helper()
	e := must.Get(cluster.Prepare(o))(t)
	t.Cleanup(e.Close)
	return e
}

// replayAll replays the vectors of a profile as subtests. It tries a vector in `unsure` several times,
// because the server at `addr` usually answers this vector as recorded, but not always.
func replayAll(t *testing.T, profile, addr string, deviations []golden.Deviation, unsure ...string) {
	vectors := must.Get(golden.Load(profile))(t)
	must.That(t, len(vectors) != 0, "no vectors of profile %s", profile)
	for _, v := range vectors {
		var mine []golden.Deviation
		for _, d := range deviations {
			if d.Vector == v.ID() {
				mine = append(mine, d)
			}
		}
		t.Run(v.ID(), func(t *testing.T) {
			err := golden.Replay(addr, &v, mine)
			for try := 1; err != nil && try < 10 && slices.Contains(unsure, v.ID()); try++ {
				t.Logf("try %d: %v", try, err)
				time.Sleep(4 * time.Second) // time for sessions and nodes of the vector to end
				err = golden.Replay(addr, &v, mine)
			}
			if err != nil {
				t.Errorf("%v\n%s", err, v.Description)
			}
		})
	}
}
