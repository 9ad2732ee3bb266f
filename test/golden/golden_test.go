package golden_test

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/golden"
	"github.com/zlockd/zlockd/test/zkreal"
)

// profiles are the configurations of the recorded server, for the real
// ZooKeeper.
var profiles = map[string]zkreal.Config{
	"default":  {},
	"extended": {TickTime: 500 * time.Millisecond, TTL: true, EnforceQuota: true, ContainerInterval: time.Second, Super: "super:secret"},
	"ensemble": {TickTime: time.Second, Reconfig: true, Replicated: true},
}

// The replayer is proven by the server that was recorded.
func TestRealZooKeeperMatchesRecording(t *testing.T) {
	t.Parallel()
	for profile, config := range profiles {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			replayAll(t, profile, zkreal.Start(t, config).Addr, nil)
		})
	}
	t.Run("readonly", func(t *testing.T) {
		t.Parallel()
		s := zkreal.StartPart(t, 3, 1, zkreal.Config{ReadOnly: true})[0]
		if err := s.WaitReadOnly(); err != nil {
			t.Fatal(err)
		}
		replayAll(t, "readonly", s.Addr, nil)
	})
}

// replayAll replays all vectors of a profile as subtests.
func replayAll(t *testing.T, profile, addr string, deviations []golden.Deviation) {
	vectors, err := golden.Load(profile)
	if err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatalf("no vectors of profile %s", profile)
	}
	for _, v := range vectors {
		var mine []golden.Deviation
		for _, d := range deviations {
			if d.Vector == v.ID() {
				mine = append(mine, d)
			}
		}
		t.Run(v.ID(), func(t *testing.T) {
			if err := golden.Replay(addr, &v, mine); err != nil {
				t.Errorf("%v\n%s", err, v.Description)
			}
		})
	}
}
