package golden_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/golden"
	"github.com/zlockd/zlockd/test/stock/launch"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/test/zkreal"
)

// zlockdProfiles are the same configurations for zlockd, as a zoo.cfg.
var zlockdProfiles = map[string][]string{
	"default":  {"tickTime=2000", "extendedTypesEnabled=false", "enforceQuota=false"},
	"extended": {"tickTime=500", "znode.container.checkIntervalMs=1000", "superUser=" + zkreal.Digest("super:secret")},
	"ensemble": {"tickTime=1000", "reconfigEnabled=true"},
}

// zlockd answers as the recorded server does, byte for byte, except where the
// table says otherwise.
func TestZlockdMatchesRecording(t *testing.T) {
	t.Parallel()
	for profile, config := range zlockdProfiles {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			e := prepare(t, launch.Options{Dev: profile != "ensemble"}, config)
			if profile == "ensemble" {
				e.Servers[0].Args = append(e.Servers[0].Args, "--peers", "1="+e.Servers[0].Peer)
			}
			if err := e.StartAll(); err != nil {
				t.Fatal(err)
			}
			replayAll(t, profile, e.Addrs(), golden.Deviations)
		})
	}
	t.Run("readonly", func(t *testing.T) {
		t.Parallel()
		e := prepare(t, launch.Options{Nodes: 3}, nil)
		alone := e.Servers[0]
		if err := alone.Spawn(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(wire.DefaultTimeout); ; time.Sleep(10 * time.Millisecond) {
			c, err := wire.Dial(alone.Client)
			if err == nil {
				c.Close()
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
		replayAll(t, "readonly", alone.Client, golden.Deviations)
	})
}

// prepare lays out a zlockd that is gone when the test ends.
func prepare(t *testing.T, o launch.Options, config []string) *launch.Ensemble {
	t.Helper()
	file := filepath.Join(t.TempDir(), "zoo.cfg")
	if err := os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Kind = launch.Zlockd
	o.Flags = []string{"--config", file}
	e, err := launch.Prepare(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}
