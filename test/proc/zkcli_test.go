//go:build stock

package proc

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// zkCli runs lines through ZooKeeper's own command and returns all it writes.
func zkCli(t *testing.T, servers string, lines ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp",
		cluster.ClassPath,
		"org.apache.zookeeper.ZooKeeperMain", "-waitforconnection", "-server", servers)
	cmd.Stdin = strings.NewReader(strings.Join(append(lines, "quit"), "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("zkCli: %v", err)
	}
	return string(out)
}

// The commands of ZooKeeper's manual for a rolling replacement.
func TestZkCliReconfigures(t *testing.T) {
	cluster.RequireZooKeeper(t)
	e := startMembers(t, 1, "--reconfig")
	fourth := e.Servers[3]
	must.OK(t, fourth.Spawn())
	all := e.Servers[0].Client + "," + e.Servers[1].Client
	wants := func(out string, want ...string) {
		t.Helper()
		rest := out
		for _, w := range want {
			i := strings.Index(rest, w)
			must.That(t, i >= 0, "%q is missing, or out of order, in:\n%s", w, out)
			rest = rest[i+len(w):]
		}
	}
	member := func(s *cluster.Server) string { return line(s, "participant") }

	out := zkCli(t, all, "config", "reconfig -remove 3", "addauth digest super:"+password,
		"reconfig -v 77 -remove 2",
		"reconfig -add "+member(fourth), "config")
	wants(out, "server.3="+e.Servers[2].Peer+":", "version=", "Insufficient permission : ",
		"version No is not valid : ",
		"Committed new configuration:", "server.4="+fourth.Peer+":", ":participant;"+fourth.Client, "version=")
	must.OK(t, fourth.WaitReady())
	out = zkCli(t, all, "addauth digest super:"+password, "config -w", "reconfig -remove 3", "config -c",
		"getAllChildrenNumber /")
	wants(out, "WatchedEvent state:SyncConnected type:NodeDataChanged path:/zookeeper/config",
		"Committed new configuration:", "server.1=", "server.2=", "server.4=", fourth.Client)
	expect.Equal(t, e.roles(fourth), "1 voter, 2 voter, 4 voter")
	must.Await(t, "the third serves no more", 5*time.Second, func() bool { return e.Servers[2].Mode() == "" })
	if out := zkCli(t, fourth.Client, "addauth digest super:"+password, "reconfig -members "+
		member(e.Servers[0])+","+member(fourth)); !strings.Contains(out, "Committed new configuration:") {
		t.Error(out)
	}
	expect.Equal(t, e.roles(fourth), "1 voter, 4 voter")
	if out := zkCli(t, fourth.Client, "addauth digest super:"+password,
		"reconfig -remove 1,4"); !strings.Contains(out, "Arguments are not valid") {
		t.Errorf("nobody left: %s", out)
	}
}
