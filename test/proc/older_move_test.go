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

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/cluster"
)

// TestRollingUpgradeKeepsLocks starts three servers of an earlier release, puts
// today's in their place one after the other, on their data, and sees a lock
// held all the time by one session. A restore waits until all are of today.
func TestRollingUpgradeKeepsLocks(t *testing.T) {
	old := BuildOlder(t)
	bin := cluster.Build(t)
	c := startOlder(t, old)
	var servers []string
	for _, s := range c.Servers {
		servers = append(servers, s.Client)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	holder, err := zk.Dial(ctx, strings.Join(servers, ","), zk.Options{Timeout: 30 * time.Second})
	must(t, "", err)
	defer holder.Close(context.Background())
	lock, err := holder.Create(ctx, zk.Create{Path: "/lock-", Mode: zk.EphemeralSequential})
	must(t, "", err)
	for i := range 200 {
		_, err := holder.Create(ctx, zk.Create{Path: fmt.Sprint("/n", i), Data: []byte("x")})
		must(t, "", err)
	}
	leader := c.WaitLeader()
	for i, s := range append(c.Others(leader), leader) {
		s.Stop()
		s.Args[0] = bin
		s.Start()
		s.WaitServing(time.Minute)
		if i == 0 {
			refusedByOlder(t, s)
		}
		if n, err := holder.Get(ctx, lock.Path); err != nil || n.Stat.EphemeralOwner != holder.Session().ID {
			t.Fatalf("server %d upgraded: the lock is gone: %v", s.ID, err)
		}
		_, err := holder.Create(ctx, zk.Create{Path: fmt.Sprint("/upgraded", s.ID)})
		must(t, "", err)
	}
	c.SameState()
	for i := range 200 {
		if _, err := holder.Get(ctx, fmt.Sprint("/n", i)); err != nil {
			t.Errorf("/n%d: %v", i, err)
		}
	}
}

// refusedByOlder checks that a restore is refused while servers of the earlier
// release would not take part in it.
func refusedByOlder(t *testing.T, s *cluster.Server) {
	t.Helper()
	r, dir := &running{admin: s.Admin}, t.TempDir()
	file, auth := filepath.Join(dir, "backup"), filepath.Join(dir, "auth")
	r.backup(t, file)
	must(t, "", os.WriteFile(auth, []byte("digest:"+super+"\n"), 0o600))
	zlock := cluster.Zlock(t)
	out, err := exec.Command(zlock, "restore", file, "--yes", clusterName(t, s), "--admin-addr", s.Admin, "--auth-file", auth).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "run a release that cannot restore") {
		t.Errorf("restored beside an older release: %v %s", err, out)
	}
}

// startOlder starts three servers of the earlier release.
func startOlder(t *testing.T, bin string) *cluster.Ensemble {
	t.Helper()
	c := cluster.LayOut(t, cluster.Options{Nodes: 3, Flags: []string{"--super-digest", superFlag}})
	for _, s := range c.Servers {
		s.Args[0] = bin
	}
	c.StartAll()
	return c
}
