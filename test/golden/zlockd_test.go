package golden_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/golden"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
)

// zlockdProfiles are the same configurations for zlockd, as a zoo.cfg.
var zlockdProfiles = map[string][]string{
	"default": {"tickTime=2000", "extendedTypesEnabled=false", "enforceQuota=false"},
	"extended": {"tickTime=500", "znode.container.checkIntervalMs=1000", "enforceQuota=true", "superUser=" +
		tree.DigestID("super:secret").ID},
	"ensemble": {"tickTime=1000", "reconfigEnabled=true", "standaloneEnabled=false"},
}

// zlockd answers as the recorded server does, byte for byte, except where the table says otherwise.
func TestZlockdMatchesRecording(t *testing.T) {
	t.Parallel()
	for profile, config := range zlockdProfiles {
		t.Run(profile, func(t *testing.T) {
			if testing.Short() && profile == "extended" {
				t.Skip("waits for nodes and sessions to end: 25 s")
			}
			t.Parallel()
			e := prepare(t, cluster.Options{Dev: profile != "ensemble"}, config)
			if profile == "ensemble" {
				e.Servers[0].Args = append(e.Servers[0].Args, "--peers", "1="+e.Servers[0].Peer)
			}
			must.OK(t, e.StartAll())
			replayAll(t, profile, e.Addrs(), golden.Deviations)
		})
	}
	t.Run("readonly", func(t *testing.T) {
		t.Parallel()
		e := prepare(t, cluster.Options{Nodes: 3}, []string{"readonlymode.enabled=true"})
		alone := e.Servers[0] // the others are never started
		must.OK(t, alone.Spawn())
		must.Await(t, "not in read-only mode", wire.DefaultTimeout, func() bool {
			return isro(alone.Client) == "ro"
		})
		replayAll(t, "readonly", alone.Client, golden.Deviations)
	})
}

// isro asks a server whether it is in read-only mode.
func isro(addr string) string {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return ""
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(wire.DefaultTimeout))
	if _, err := nc.Write([]byte("isro")); err != nil {
		return ""
	}
	b, _ := io.ReadAll(nc)
	return string(b)
}

// prepare lays out a zlockd that is gone when the test ends.
func prepare(t *testing.T, o cluster.Options, config []string) *cluster.Ensemble {
	t.Helper()
	file := filepath.Join(t.TempDir(), "zoo.cfg")
	must.OK(t, os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o600))
	o.Kind = cluster.Zlockd
	o.Flags = []string{"--config", file}
	e := must.Get(cluster.Prepare(o))(t)
	t.Cleanup(e.Close)
	return e
}

// replayAll replays all vectors of a profile as subtests. Those that are unsure
// have a few tries: the server at addr does what was recorded, but not always.
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
				err = golden.Replay(addr, &v, mine)
			}
			if err != nil {
				t.Errorf("%v\n%s", err, v.Description)
			}
		})
	}
}
