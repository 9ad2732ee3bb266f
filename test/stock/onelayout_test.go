//go:build stock

package stock

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var layoutRuns = flag.Int("layout.runs", 100, "how many times Curator and kazoo take one path at the same time")

// taker is a program that takes a lock at each given path, and prints the result.
type taker struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

func startTaker(t *testing.T, g target, args ...string) *taker {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "ZK="+g.String())
	cmd.Stderr = os.Stderr
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	k := &taker{t, in, bufio.NewScanner(out)}
	must.Equal(t, k.said(), "ready", args[0])
	return k
}

func (k *taker) take(path string) { must.Get(fmt.Fprintln(k.in, path))(k.t) }

func (k *taker) said() string {
	k.t.Helper()
	must.That(k.t, k.out.Scan(), "the program has ended: %v", k.out.Err())
	return k.out.Text()
}

// TestOneLayout lets Curator and kazoo take one path at the same time, many times. Without --one-layout both
// hold the path each time. With --one-layout one of them holds it, and the other shows an error.
func TestOneLayout(t *testing.T) {
	beside(t)
	need(t, "/usr/bin/python3", "/usr/lib/python3/dist-packages/kazoo/client.py")
	script := must.Get(filepath.Abs("testdata/kazoo/layout.py"))(t)
	for name, c := range map[string]struct {
		flags   []string
		holders int
	}{
		"off": {nil, 2},
		"on":  {[]string{"--one-layout"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := generous()
			o.Kind, o.Nodes = cluster.Zlockd, 3
			o.Flags = append(o.Flags, c.flags...)
			e := cluster.Run(t, o)
			g := target{addrs: strings.Split(e.Addrs(), ","), kind: cluster.Zlockd, ensemble: e}
			both := []*taker{startTaker(t, g, append(javaDriver(t, "LayoutTaker"), "mutex")...),
				startTaker(t, g, "/usr/bin/python3", "-B", script)}
			tries := 0
			must.Await(t, "all servers know the setting", time.Minute, func() bool {
				tries++
				held := 0
				for _, k := range both {
					k.take(fmt.Sprint("/begin/", tries))
					if k.said() == "holds" {
						held++
					}
				}
				return held == c.holders
			})
			found := map[string]int{}
			for run := range *layoutRuns {
				path := fmt.Sprintf("/l/%d", run)
				first := run % 2
				both[first].take(path)
				both[1-first].take(path)
				told := []string{both[0].said(), both[1].said()}
				found[told[0]+" "+told[1]]++
				holders := strings.Count(strings.Join(told, " "), "holds")
				must.Equal(t, holders, c.holders, "holders of %s: Curator %s, kazoo %s", path, told[0], told[1])
			}
			t.Logf("%d runs; what Curator and kazoo say: %v", *layoutRuns, found)
		})
	}
}

// Each library shows the refusal at once, under its own name for NOAUTH, and does not try again.
func TestOneLayoutIsShownByStockClients(t *testing.T) {
	beside(t)
	need(t, "/usr/bin/python3", "/usr/lib/python3/dist-packages/kazoo/client.py",
		"/usr/lib/zookeeper/bin/cli_mt")
	o := generous()
	o.Kind, o.Nodes = cluster.Zlockd, 1
	o.Flags = append(o.Flags, "--one-layout")
	e := cluster.Run(t, o)
	g := target{addrs: strings.Split(e.Addrs(), ","), kind: cluster.Zlockd, ensemble: e}
	script := must.Get(filepath.Abs("testdata/kazoo/layout.py"))(t)
	kazoo := startTaker(t, g, "/usr/bin/python3", "-B", script)
	mutex := startTaker(t, g, append(javaDriver(t, "LayoutTaker"), "mutex")...)
	kazoo.take("/kz")
	must.Equal(t, kazoo.said(), "holds")
	mutex.take("/cur")
	must.Equal(t, mutex.said(), "holds")
	kazoo.take("/cur")
	expect.Equal(t, kazoo.said(), "NoAuthError", "kazoo's lock beside Curator's mutex")
	mutex.take("/kz")
	expect.Equal(t, mutex.said(), "NoAuthException", "Curator's mutex beside kazoo's lock")
	for _, kind := range []string{"read-write", "semaphore"} {
		other := startTaker(t, g, append(javaDriver(t, "LayoutTaker"), kind)...)
		other.take("/cur")
		expect.Equal(t, other.said(), "NoAuthException", "Curator's %s beside its mutex", kind)
	}
	c := (&goSuite{target: g}).connect(t)
	_, err := c.CreateProtectedEphemeralSequential("/kz/lock-", nil, zk.WorldACL(zk.PermAll))
	expect.Equal(t, err, zk.ErrNoAuth, "what go-zookeeper shows")
	cli := exec.Command("/usr/lib/zookeeper/bin/cli_mt", g.String())
	in, out := must.Get(cli.StdinPipe())(t), new(must.Text)
	cli.Stdout, cli.Stderr = out, out
	must.OK(t, cli.Start())
	out.Await(t, "CONNECTED_STATE")
	must.Get(fmt.Fprintln(in, "create +es /kz/x-0x1000a-"))(t)
	out.Await(t, "rc = -102") // ZNOAUTH
	must.Get(fmt.Fprintln(in, "quit"))(t)
	expect.OK(t, cli.Wait(), "cli_mt")
}
