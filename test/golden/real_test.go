//go:build stock

package golden_test

import (
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/golden"
	"github.com/zlockd/zlockd/test/must"
)

// The constant racing names a vector whose result depends on a race that the recorded server nearly always
// wins: it closes the connection before it reads the request after closeSession.
const racing = "session/close_session_discards_pipelined"

// The recorded server passes its own recording, which proves the replayer.
func TestRealZooKeeperMatchesRecording(t *testing.T) {
	t.Parallel()
	for profile, config := range profiles {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			replayAll(t, profile, cluster.StartZooKeeper(t, config...).Client, nil, append(timed, racing)...)
		})
	}
	t.Run("readonly", func(t *testing.T) {
		t.Parallel()
		s := cluster.PrepareZooKeepers(t, 3, readOnly, "localSessionsEnabled=true").Servers[0]
		must.OK(t, s.Spawn())
		must.OK(t, s.WaitReady())
		must.Await(t, "read-only mode", time.Minute, func() bool { return s.Mode() == "read-only" })
		replayAll(t, "readonly", s.Client, nil)
	})
}

// An entry in the table of deviations fails once the server answers as recorded.
func TestDeviationThatIsNotNeededFails(t *testing.T) {
	t.Parallel()
	addr := cluster.StartZooKeeper(t, profiles["default"]...).Client
	vectors := must.Get(golden.Load("default"))(t)
	tried := 0
	for _, v := range vectors {
		for _, d := range golden.Deviations {
			if d.Vector != v.ID() || len(d.Want) != 1 || d.Want[0].Do != "recv" || v.Steps[d.Step].Do != "recv" {
				continue
			}
			tried++
			err := golden.Replay(addr, &v, []golden.Deviation{d})
			expect.That(t, err != nil && strings.Contains(err.Error(), "not needed"),
				"%s step %d: %v", d.Vector, d.Step, err)
			break
		}
	}
	expect.That(t, tried >= 5, "only %d deviations were tried", tried)
}
