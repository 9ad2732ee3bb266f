package proc

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var vanishes = flag.Int("vanishes", 1, "how often the leader's host vanishes, and is cut off one way")

// arrived is how long after a cut an answer may still arrive whose write was committed before the cut.
const arrived = 150 * time.Millisecond

// TestG21LeadersHostVanishes takes the leader's host off the network, and no client gets a reset. The clients
// of the other servers keep their connections, and writes resume. The other servers notice that their
// connections to the host are dead, and the host rejoins by itself.
func TestG21LeadersHostVanishes(t *testing.T) {
	w := newWires(t, 3)
	c := cluster.Run(t, cluster.Options{Hosts: w.hosts(3), Flags: []string{"--peer-insecure"}})
	load := StartWriters(t, c, 2, 30*time.Second)
	var resumed, noticed []time.Duration
	// A real fault is slow each time, a busy machine only sometimes.
	slow := func() bool {
		return slices.Min(resumed) > 3*time.Second || slices.Min(noticed) > 15*time.Second
	}
	for n := 0; n < *vanishes || n < *vanishes+4 && slow(); n++ {
		time.Sleep(500 * time.Millisecond)
		lead := c.WaitLeader()
		survivors := c.Others(lead)
		lost, ended := load.disturbances(survivors)
		ceased := outages(survivors)
		w.vanish(lead.ID)
		at := time.Now()
		resumed = append(resumed, arrived+load.awaitWrite(at.Add(arrived), lead, 20*time.Second))
		for limit := at.Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			open := 0
			for _, s := range survivors {
				open += w.connections(s.ID, lead.ID)
			}
			if open == 0 {
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("a minute after the host vanished %d connections with it are thought to be open", open)
			}
		}
		noticed = append(noticed, time.Since(at))
		if l, e := load.disturbances(survivors); e != ended {
			t.Errorf("clients of the survivors lost %d sessions; the host vanished at %s", e-ended,
				at.UTC().Format("15:04:05.000"))
		} else if l != lost && outages(survivors) == ceased {
			t.Errorf("clients of the survivors lost %d connections; the host vanished at %s", l-lost,
				at.UTC().Format("15:04:05.000"))
		} else if l != lost {
			// This is allowed: after three seconds without a leader, a server sends its clients away.
			t.Logf("clients of the survivors had to connect again: %d", l-lost)
		}
		w.appear(lead.ID)
		lead.WaitServing(time.Minute)
		load.awaitWrite(time.Now(), nil, 20*time.Second)
	}
	report(t, "writes resume after the leader's host vanished", resumed)
	report(t, "survivors have closed all connections with it", noticed)
	if t.Failed() {
		for _, s := range c.Servers {
			for _, o := range load.Of(s) {
				t.Logf("a client of server %d: %q", s.ID, o.Ends)
			}
		}
	}
	expect.That(t, !slow(), "writes resume only after %v, or a dead peer was noticed only after %v", resumed,
		noticed)
	load.Check(c)
	c.SameState()
}

// TestG21LeaderIsCutOffOneWay makes the leader unable to reach the others, which
// still reach it, and the other way round. Writes must resume both times, and
// the clients, which reach all servers, lose no session.
func TestG21LeaderIsCutOffOneWay(t *testing.T) {
	w := newWires(t, 3)
	c := cluster.Run(t, cluster.Options{Hosts: w.hosts(3), Flags: []string{"--peer-insecure"}})
	load := StartWriters(t, c, 2, 30*time.Second)
	for _, way := range []string{"from", "to"} {
		var resumed []time.Duration
		slow := func() bool { return slices.Min(resumed) > 5*time.Second }
		for n := 0; n < *vanishes || n < *vanishes+4 && slow(); n++ {
			time.Sleep(500 * time.Millisecond)
			lead := c.WaitLeader()
			cut := func(f func(from, to int)) {
				for _, s := range c.Others(lead) {
					if way == "from" {
						f(lead.ID, s.ID)
					} else {
						f(s.ID, lead.ID)
					}
				}
			}
			cut(w.deafen)
			at := time.Now()
			resumed = append(resumed, arrived+load.awaitWrite(at.Add(arrived), lead, 20*time.Second))
			time.Sleep(2 * time.Second)
			cut(w.heal)
			c.WaitServing(time.Minute)
		}
		report(t, "writes resume when nothing goes "+way+" the leader", resumed)
		expect.That(t, !slow(), "writes resume only after %v when nothing goes %s the leader", resumed, way)
	}
	_, expired := load.disturbances(c.Servers)
	expect.That(t, expired <= 0, "%d sessions were lost", expired)
	load.Check(c)
	c.SameState()
}

// wires is a switch with hosts on it, each host a network namespace of its
// own. Nothing in it is reachable from outside, and it ends with the test.
type wires struct {
	t      testing.TB
	prefix string
	net    string // first three numbers of the addresses
}

// newWires makes n hosts and one more for the clients. It skips the test where network namespaces are not
// available.
func newWires(t testing.TB, n int) *wires {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs the command ip (iproute2)")
	}
	w := &wires{t: t, prefix: fmt.Sprintf("zl%d", os.Getpid()), net: "10.77.0"}
	if out, err := exec.Command("ip", "netns", "add", w.ns("sw")).CombinedOutput(); err != nil {
		t.Skipf("network namespaces cannot be made here: %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", w.ns("sw")).Run() })
	w.ip("-n", w.ns("sw"), "link", "add", "br0", "type", "bridge")
	w.ip("-n", w.ns("sw"), "link", "set", "br0", "up")
	for h := 1; h <= n+1; h++ {
		ns := w.ns(fmt.Sprint(h))
		w.ip("netns", "add", ns)
		t.Cleanup(func() { exec.Command("ip", "netns", "del", ns).Run() })
		port := fmt.Sprintf("p%d", h)
		w.ip("-n", w.ns("sw"), "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns)
		w.ip("-n", w.ns("sw"), "link", "set", port, "master", "br0", "up")
		w.ip("-n", ns, "addr", "add", w.addr(h)+"/24", "dev", "eth0")
		w.ip("-n", ns, "link", "set", "eth0", "up")
		w.ip("-n", ns, "link", "set", "lo", "up")
	}
	return w
}

func (w *wires) ns(name string) string { return w.prefix + "-" + name }

func (w *wires) addr(host int) string { return fmt.Sprintf("%s.%d", w.net, host) }

func (w *wires) ip(args ...string) {
	w.t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	must.OK(w.t, err, "ip %s: %s", strings.Join(args, " "), out)
}

// hosts() says where servers 1 to n run, with all clients on the last host.
func (w *wires) hosts(n int) []cluster.Host {
	var list []cluster.Host
	for h := 1; h <= n; h++ {
		list = append(list, cluster.Host{
			Addr: w.addr(h),
			Exec: []string{"ip", "netns", "exec", w.ns(fmt.Sprint(h))},
			Dial: func(addr string, limit time.Duration) (net.Conn, error) { return w.dial(n+1, addr, limit) },
		})
	}
	return list
}

// dial() connects from a host. The thread that makes the socket moves to the host's network namespace. If the
// thread cannot be moved back, it is not used again.
func (w *wires) dial(from int, addr string, limit time.Duration) (net.Conn, error) {
	there, err := unix.Open("/var/run/netns/"+w.ns(fmt.Sprint(from)), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(there)
	runtime.LockOSThread()
	here, err := unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC,
		0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(here)
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	c, err := net.DialTimeout("tcp", addr, limit)
	if back := unix.Setns(here, unix.CLONE_NEWNET); back == nil {
		runtime.UnlockOSThread()
	}
	return c, err
}

// vanish() takes a host off the switch: packets to it and from it are lost silently. appear() plugs it in
// again.
func (w *wires) vanish(host int) {
	w.t.Helper()
	w.ip("-n", w.ns("sw"), "link", "set", fmt.Sprintf("p%d", host), "nomaster")
}

func (w *wires) appear(host int) {
	w.t.Helper()
	w.ip("-n", w.ns("sw"), "link", "set", fmt.Sprintf("p%d", host), "master", "br0")
}

// deafen() makes all packets from one host to another get lost, but none in the other direction: the packets
// go to an address that no host has. heal() ends that.
func (w *wires) deafen(from, to int) {
	w.t.Helper()
	w.ip("-n", w.ns(fmt.Sprint(from)), "neigh", "replace", w.addr(to), "lladdr", "02:00:00:00:ff:ff", "dev",
		"eth0", "nud", "permanent")
}

func (w *wires) heal(from, to int) {
	w.t.Helper()
	w.ip("-n", w.ns(fmt.Sprint(from)), "neigh", "del", w.addr(to), "dev", "eth0")
}

// connections() counts the established TCP connections that a host has with another.
func (w *wires) connections(of, with int) int {
	out := must.Get(exec.Command("ip", "netns", "exec", w.ns(fmt.Sprint(of)), "cat", "/proc/net/tcp").Output())(
		w.t)
	ip := net.ParseIP(w.addr(with)).To4()
	want := fmt.Sprintf("%02X%02X%02X%02X:", ip[3], ip[2], ip[1], ip[0])
	n := 0
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 3 && strings.HasPrefix(f[2], want) && f[3] == "01" {
			n++
		}
	}
	return n
}
