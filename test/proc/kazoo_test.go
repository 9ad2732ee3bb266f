//go:build stock

package proc

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// holder holds a lock by kazoo, and says what becomes of its session. It ends
// when its standard input does, after it has looked at the lock once more.
const holder = `
import sys, logging
from kazoo.client import KazooClient
logging.basicConfig(stream=sys.stderr)
zk = KazooClient(hosts=sys.argv[1], timeout=60, connection_retry=dict(max_tries=-1, delay=0.1, max_delay=0.5))
def say(*args):
    print(*args, flush=True)
zk.add_listener(lambda state: say("state", state))
zk.start(timeout=60)
lock = zk.Lock("/locks/a", "holder")
lock.acquire()
say("held", lock.node, zk.client_id[0])
sys.stdin.readline()
nodes = zk.retry(zk.get_children, "/locks/a")
say("after", ",".join(nodes), zk.client_id[0], lock.is_acquired)
lock.release()
say("released", len(zk.get_children("/locks/a")))
zk.stop()
`

// TestKazooKeepsItsLock moves a ZooKeeper's data to zlockd, at the same address,
// while a stock client holds a lock.
func TestKazooKeepsItsLock(t *testing.T) {
	cluster.RequireZooKeeper(t)
	src := cluster.StartZooKeeper(t, zooConfig(), smallFiles...)
	cmd := exec.Command("/usr/bin/python3", "-c", holder, src.Client)
	in, err := cmd.StdinPipe()
	must.OK(t, err)
	out, err := cmd.StdoutPipe()
	must.OK(t, err)
	must.OK(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	var said []string
	wait := func(prefix string) string {
		t.Helper()
		limit := time.After(90 * time.Second)
		for {
			select {
			case line, ok := <-lines:
				said = append(said, line)
				if strings.HasPrefix(line, prefix) {
					return line
				}
				must.That(t, ok && line != "state LOST", "waiting for %q: %q", prefix, said)
			case <-limit:
				t.Fatalf("waiting for %q: %q", prefix, said)
			}
		}
	}
	held := strings.Fields(wait("held"))
	src.Stop()
	wait("state SUSPENDED")
	ours := filepath.Join(t.TempDir(), "ours")
	text, err := zlockd(t, "import", "--from", src.Data(), "--data-dir", ours, "--keep-sessions",
		"--drop-torn-record")
	t.Log(output(t, text, err))
	s := serve(t, cluster.Build(t), ours, "--client-addr", src.Client, "--max-session-timeout", "10m")
	defer s.stop()
	wait("state CONNECTED")
	_, err = io.WriteString(in, "\n")
	must.OK(t, err)
	after := strings.Fields(wait("after"))
	expect.That(t, after[1] == held[1] && after[2] == held[2] && after[3] == "True",
		"held %q, then %q", held, after)
	expect.Equal(t, wait("released"), "released 0")
}
