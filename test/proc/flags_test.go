package proc

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestFlagsThatCannotBeRightAreRefused starts servers with flags that can never be right. Each server says
// what is wrong and what to do, and does not start.
func TestFlagsThatCannotBeRightAreRefused(t *testing.T) {
	bin := cluster.Build(t)
	const peers = "1=127.0.0.1:2888,2=127.0.0.1:2889,3=127.0.0.1:2890"
	for _, test := range []struct{ name, args, want string }{
		{"unknown id", "--id 7 --peers " + peers, "--id 7 is not among the --peers " + peers +
			": list this server too, or correct --id"},
		{"no peers", "--id 2", "--id 2 needs --peers: list all servers of the cluster, such as --peers 1="},
		{"two servers with one id", "--id 1 --peers 1=127.0.0.1:2888,1=127.0.0.1:2889",
			"server 1 is listed twice"},
		{"two servers at one address", "--id 1 --peers 1=127.0.0.1:2888,2=127.0.0.1:2888",
			"servers 1 and 2 have the same address 127.0.0.1:2888"},
		{"an entry without id", "--id 1 --peers 127.0.0.1:2888",
			`entry "127.0.0.1:2888" is not ID=HOST:PORT, such as 1=lock1:2888`},
		{"an entry without port", "--id 1 --peers 1=lock1,2=lock2:2888", "the port is missing"},
		{"port 0 of another", "--id 1 --peers 1=127.0.0.1:2888,2=127.0.0.1:0",
			"server 2 has port 0, at which the others cannot reach it"},
		{"peer port for everybody", "--id 1 --peers 1=10.0.0.1:2888,2=10.0.0.2:2888",
			"can be reached by others and has no TLS: give --peer-tls-cert, --peer-tls-key and --peer-tls-ca, or " +
				"--peer-insecure"},
		{"peer port on all addresses", "--id 1 --peers " + peers + " --peer-addr :2888",
			"can be reached by others and has no TLS"},
		{"half of TLS", "--id 1 --peers " + peers + " --peer-tls-cert a.pem", "belong together: give all three"},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := append(strings.Fields(test.args), "--data-dir", t.TempDir(), "--client-addr", "127.0.0.1:0",
				"--admin-addr", "off")
			cmd := exec.Command(bin, args...)
			timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
			defer timer.Stop()
			out, _ := cmd.CombinedOutput()
			code := cmd.ProcessState.ExitCode()
			expect.Equal(t, code, 2, "exit code")
			expect.Has(t, string(out), test.want, "standard output")
		})
	}
}

// stays() checks for a while that none of the servers serves.
func stays(t *testing.T, servers ...*cluster.Server) {
	t.Helper()
	for range 20 {
		for _, s := range servers {
			must.Equal(t, s.Mode(), "", "server %d serves, as", s.ID)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func three(t *testing.T) *cluster.Ensemble { return cluster.LayOut(t, cluster.Options{Nodes: 3}) }

// peersOf returns a list of servers as --peers takes it.
func peersOf(servers ...*cluster.Server) string {
	var list []string
	for _, s := range servers {
		list = append(list, fmt.Sprintf("%d=%s", s.ID, s.Peer))
	}
	return strings.Join(list, ",")
}

// TestListsThatDifferFormNoCluster gives one of three servers a different list of peers. The servers must
// form no cluster, and each says which lists differ. After the correction they form one.
func TestListsThatDifferFormNoCluster(t *testing.T) {
	c := three(t)
	odd := c.Servers[2]
	right := peersOf(c.Servers...)
	odd.Set("--peers", peersOf(c.Servers[0], odd))
	for _, s := range c.Servers {
		s.Start()
	}
	c.Servers[0].AwaitLog("server 3 was started with other --peers: " + peersOf(c.Servers[0], odd) +
		" instead of " + right + "; start all servers with the same list")
	odd.AwaitLog("server 1 was started with other --peers: " + right + " instead of ")
	stays(t, c.Servers...)
	odd.Kill()
	odd.Set("--peers", right)
	odd.Start()
	c.WaitServing(time.Minute)
}

// TestTwoServersWithOneID starts the second of three servers with the id of the first, and later a fourth
// server with the id of one that runs.
func TestTwoServersWithOneID(t *testing.T) {
	c := three(t)
	twin := c.Servers[1]
	twin.Set("--id", "1")
	for _, s := range c.Servers {
		s.Start()
	}
	for _, s := range c.Servers {
		s.AwaitLog("this is server 1, not 2; check the --peers lists")
	}
	stays(t, c.Servers...)
	// A server whose directory belongs to another id refuses to start.
	twin.Kill()
	twin.Set("--id", "2")
	twin.Start()
	<-twin.Exited()
	twin.AwaitLog("belongs to server 1, but --id is 2")
	twin.Set("--data-dir", t.TempDir())
	twin.Start()
	c.WaitServing(time.Minute)

	late := cluster.LayOut(t, cluster.Options{}).Servers[0]
	late.Args = append(late.Args, "--peers", peersOf(c.Servers...), "--peer-addr", late.Peer)
	late.Start()
	late.AwaitLog("with another data directory; this directory is empty, so the server must not vote")
	late.AwaitLog("If server 1 runs elsewhere, this server needs another --id")
	late.AwaitLog("does not reach itself at its address in --peers")
	stays(t, late)
}

// TestDirectoryOfAnotherCluster starts a server on a data directory of another cluster. The server never
// serves and says why. The other servers are not affected.
func TestDirectoryOfAnotherCluster(t *testing.T) {
	elsewhere := three(t)
	elsewhere.StartAll()
	for _, s := range elsewhere.Servers {
		s.Kill()
	}
	c := three(t)
	lost := c.Servers[2]
	c.StartAll()
	lost.Kill()
	lost.Set("--data-dir", elsewhere.Servers[2].Data())
	lost.Start()
	lost.AwaitLog("this server belongs to cluster")
	stays(t, lost)
	for _, s := range c.Others(lost) {
		s.WaitServing(time.Minute)
	}
}

// TestPeerAddrThatIsNotListed starts a server at an address that no other server knows. The server says what
// is wrong, and the two other servers serve.
func TestPeerAddrThatIsNotListed(t *testing.T) {
	c := three(t)
	wrong := c.Servers[0]
	wrong.Set("--peer-addr", cluster.LayOut(t, cluster.Options{}).Servers[0].Peer)
	for _, s := range c.Servers {
		s.Start()
	}
	wrong.AwaitLog("does not reach itself at its address in --peers, so the others may not reach it either: " +
		"correct --peer-addr or --peers")
	c.Servers[1].AwaitLog("waiting for server 1 at " + wrong.Peer)
	wrong.Kill()
	wrong.Set("--peer-addr", wrong.Peer)
	wrong.Start()
	c.WaitServing(time.Minute)
}

// TestPeersChangedAfterForming restarts a server with a longer list of peers, with a shorter one and with
// none. The server serves if it has a list, and says what differs from the cluster.
func TestPeersChangedAfterForming(t *testing.T) {
	c := three(t)
	c.StartAll()
	s := c.Servers[0]
	fourth := cluster.LayOut(t, cluster.Options{}).Servers[0]
	fourth.ID = 4
	again := func(peers string) {
		s.Stop()
		s.Set("--peers", peers)
		s.Start()
		s.WaitServing(time.Minute)
	}

	longer := peersOf(c.Servers...) + "," + peersOf(fourth)
	again(longer)
	s.AwaitLog("--peers names a server that is not a member: add it by zlock member add ID HOST:PORT\" server=1 " +
		"peer=4 addr=" + fourth.Peer)
	fourth.Args = append(fourth.Args, "--peers", longer, "--peer-addr", fourth.Peer)
	fourth.Set("--id", "4")
	fourth.Start()
	fourth.AwaitLog("does not know server 4. Run on another server: zlock member add 4 " + fourth.Peer)
	stays(t, fourth)

	again(peersOf(c.Servers[:2]...))
	s.AwaitLog("a member is missing in --peers: list it, or remove it by: zlock member remove ID\" server=1 " +
		"peer=3 addr=" + c.Servers[2].Peer)

	third := c.Servers[2].Peer
	again(strings.Replace(peersOf(c.Servers...), third, fourth.Peer, 1))
	s.AwaitLog("--peers and the cluster differ in an address: start all servers with the same list\" server=1 " +
		"peer=3 listed=" + fourth.Peer + " addr=" + third)

	s.Stop()
	alone := exec.Command(cluster.Build(t), "--data-dir", s.Data(), "--client-addr", s.Client, "--admin-addr",
		"off")
	timer := time.AfterFunc(time.Minute, func() { alone.Process.Signal(os.Kill) })
	defer timer.Stop()
	out, _ := alone.CombinedOutput()
	want := "belongs to server 1 of a cluster: give --peers " + peersOf(c.Servers...)
	code := alone.ProcessState.ExitCode()
	expect.Equal(t, code, 1, "without --peers: exit code")
	expect.Has(t, string(out), want, "without --peers: standard output")
}
