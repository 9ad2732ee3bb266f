//go:build stock

package proc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
)

// config is that of every ZooKeeper here: small snapshots and logs, so that
// there are many, and no session ends by itself.
func zooConfig() cluster.ZooConfig {
	return cluster.ZooConfig{TTL: true, Super: super, ContainerInterval: time.Second, NoFsync: true,
		MaxSessionTimeout: longSession}
}

var smallFiles = []string{"preAllocSize=64", "snapCount=2000"}

// zlockd runs a command to its end.
func zlockd(t testing.TB, args ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(cluster.Build(t), args...).CombinedOutput()
	return string(out), err
}

// start runs a ZooKeeper on a copy of a data directory.
func startOn(t testing.TB, from string, c cluster.ZooConfig) *cluster.Server {
	t.Helper()
	e := cluster.PrepareZooKeepers(t, 1, c, smallFiles...)
	must.OK(t, os.CopyFS(e.Servers[0].Data(), os.DirFS(from)))
	e.StartAll()
	return e.Servers[0]
}

// TestThereAndBack lets a real ZooKeeper write, kills it in the middle, imports
// what it left, exports that, and compares a ZooKeeper on the one with a
// ZooKeeper on the other.
func TestThereAndBack(t *testing.T) {
	cluster.RequireZooKeeper(t)
	seeds, changes := 3, 12_000
	if os.Getenv("ZLOCKD_LONG") != "" {
		seeds, changes = 10, 100_000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { thereAndBack(t, uint64(seed), changes) })
	}
}

func thereAndBack(t *testing.T, seed uint64, changes int) {
	compression := "snapshot.compression.method=" + [...]string{"", "gz", "snappy"}[seed%3]
	src := cluster.StartZooKeeper(t, zooConfig(), append(smallFiles, compression)...)
	data, tmp := src.Data(), t.TempDir()
	ours, back := filepath.Join(tmp, "ours"), filepath.Join(tmp, "back")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	load(ctx, t, src.Client, seed, changes/2)
	if out, err := zlockd(t, "import", "--from", data, "--data-dir", ours); err == nil ||
		!strings.Contains(out, "stop that ZooKeeper first") {
		t.Errorf("a ZooKeeper that runs: %v\n%s", err, out)
	}
	src.Stop()
	if err := src.Spawn(); err != nil { // goes on in a new log
		t.Fatal(err)
	}
	must.OK(t, src.WaitReady())
	done := make(chan struct{})
	go func() {
		defer close(done)
		load(ctx, t, src.Client, seed+1000, changes/2)
	}()
	wait := time.Duration(1+seed%4) * time.Duration(changes/12) * time.Millisecond
	select {
	case <-done:
	case <-time.After(wait): // anywhere will do
	}
	src.Kill()
	stop() // no server answers the writers any longer
	<-done

	out, err := zlockd(t, "import", "--from", data, "--data-dir", ours, "--keep-sessions", "--drop-torn-record")
	t.Log(output(t, out, err))
	out, err = zlockd(t, "verify", "--ephemerals", data, ours)
	if err != nil && !strings.Contains(out, "of an entry") { // a torn end is compared below
		t.Fatal(out)
	}
	out, err = zlockd(t, "export", "--data-dir", ours, "--to", back, "--keep-sessions")
	t.Log(output(t, out, err))
	out, err = zlockd(t, "verify", "--ephemerals", ours, back)
	t.Log(output(t, out, err))

	quiet := zooConfig()
	quiet.ContainerInterval = time.Hour // nothing goes while the two are compared
	a, b := startOn(t, data, quiet), startOn(t, back, quiet)
	auth := filepath.Join(tmp, "auth")
	must.OK(t, os.WriteFile(auth, []byte("digest:"+super+"\n"), 0o600))
	out, err = zlockd(t, "verify", "--ephemerals", "--auth-file", auth, a.Client, b.Client)
	t.Log(output(t, out, err))
	for _, s := range []*cluster.Server{a, b} {
		log := must.Get(os.ReadFile(s.LogFile()))(t)
		if text := strings.ToLower(string(log)); strings.Contains(text, "digest") &&
			strings.Contains(text, "mismatch") {
			t.Errorf("ZooKeeper finds another digest:\n%s", log)
		}
	}
}
