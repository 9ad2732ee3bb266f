package proc

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
)

// wires is a switch with hosts on it, each host a network namespace of its
// own. Nothing in it is reachable from outside, and it ends with the test.
type wires struct {
	t      testing.TB
	prefix string
	net    string // first three numbers of the addresses
}

// newWires makes n hosts and one more, from which the clients come, or skips
// the test where that is not possible.
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
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		w.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// hosts says where servers 1 to n run, with all clients on the last host.
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

// dial connects from a host. The thread that makes the socket is moved there,
// and is not used again when it cannot be moved back.
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

// vanish takes a host off the switch: whatever is sent to it or by it is lost
// without a word. appear plugs it in again.
func (w *wires) vanish(host int) {
	w.t.Helper()
	w.ip("-n", w.ns("sw"), "link", "set", fmt.Sprintf("p%d", host), "nomaster")
}

func (w *wires) appear(host int) {
	w.t.Helper()
	w.ip("-n", w.ns("sw"), "link", "set", fmt.Sprintf("p%d", host), "master", "br0")
}

// deafen makes one host lose all it sends to another, which still reaches it:
// its packets go to an address that is on no host. heal ends that.
func (w *wires) deafen(from, to int) {
	w.t.Helper()
	w.ip("-n", w.ns(fmt.Sprint(from)), "neigh", "replace", w.addr(to), "lladdr", "02:00:00:00:ff:ff", "dev",
		"eth0", "nud", "permanent")
}

func (w *wires) heal(from, to int) {
	w.t.Helper()
	w.ip("-n", w.ns(fmt.Sprint(from)), "neigh", "del", w.addr(to), "dev", "eth0")
}

// connections counts the established TCP connections that a host has with
// another.
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
