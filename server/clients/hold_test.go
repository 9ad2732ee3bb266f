//go:build linux

package clients

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
	"github.com/zlockd/zlockd/test/wire"
)

// TestHoldSessions generates load for TestIdleSessionsOverTCP in its own process. ZLOCKD_HOLD has the address
// of a server and a number of sessions. The test opens that many sessions, from many addresses of the
// loopback network. For each line of input it lets every session ping once.
func TestHoldSessions(t *testing.T) {
	addr, count, ok := strings.Cut(os.Getenv("ZLOCKD_HOLD"), " ")
	if !ok {
		t.Skip("the generator of TestIdleSessionsOverTCP")
	}
	n := must.Get(strconv.Atoi(count))(t)
	list := make([]net.Conn, n)
	hello := wire.AppendConnectRequest(nil, wire.NewSession(3_600_000))
	ping := wire.AppendRequest(nil, jute.XidPing, jute.OpPing, nil)
	buf := make([]byte, 64)
	open := func(i int) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, byte(1+i>>14), byte(i>>8), byte(1+i&0x7f))}}
		list[i] = must.Get(d.Dial("tcp", addr))(t)
		must.Get(list[i].Write(hello))(t)
		must.Get(io.ReadFull(list[i], make([]byte, 4+36)))(t)
	}
	const width = 64 // number of sessions that are opened at once, so that they share entries of the log
	var wg sync.WaitGroup
	for w := range width {
		wg.Go(func() {
			for i := w; i < n; i += width {
				open(i)
			}
		})
	}
	wg.Wait()
	fmt.Println("held")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		for _, c := range list {
			must.Get(c.Write(ping))(t)
		}
		for _, c := range list {
			must.Get(io.ReadFull(c, buf[:4+16]))(t)
		}
		fmt.Println("pinged")
	}
}

// TestIdleSessionsOverTCP bounds the memory of a TCP session whose client only pings. The memory of the Go
// runtime outside the heap counts as well. ZLOCKD_SESSIONS=18000 sets the number of sessions.
func TestIdleSessionsOverTCP(t *testing.T) {
	n := asMany("ZLOCKD_SESSIONS", 500)
	r := newRig(t, options.Options{MaxConns: -1, MaxConnsPerAddr: -1, MaxSessionTimeout: time.Hour})
	alive(t, r.client())
	r.asleep(1)
	heap, stacks := living()
	holder := exec.Command(must.Get(os.Executable())(t), "-test.run", "^TestHoldSessions$")
	holder.Env = append(os.Environ(), fmt.Sprintf("ZLOCKD_HOLD=%v %d", r.ln.Addr(), n))
	holder.Stderr = os.Stderr
	in, out := must.Get(holder.StdinPipe())(t), must.Get(holder.StdoutPipe())(t)
	must.OK(t, holder.Start())
	defer func() {
		in.Close()
		io.Copy(io.Discard, out)
		expect.OK(t, holder.Wait(), "generator")
	}()
	lines := bufio.NewScanner(out)
	said := func(want string) {
		for lines.Scan() {
			if lines.Text() == want {
				return
			}
		}
		t.Fatalf("the generator ended before it said %q", want)
	}
	said("held")
	pingAll := func() {
		fmt.Fprintln(in)
		said("pinged")
	}
	pingAll()
	r.asleep(n + 1)
	heap2, stacks2 := living()
	const rounds = 10
	user, system := cpuParts()
	for range rounds {
		pingAll()
	}
	user2, system2 := cpuParts()
	h, s := (heap2-heap)/n, (stacks2-stacks)/n
	t.Logf("%d sessions over TCP: each %d bytes, of them %d of stack; a ping %v of processor, and %v in the kernel",
		n, h+s, s, (user2-user)/time.Duration(rounds*n), (system2-system)/time.Duration(rounds*n))
	if most := 2500 + 2_000_000/n; h+s > most && !race.Enabled {
		t.Errorf("an idle session takes %d bytes, %d of heap and %d of stack", h+s, h, s)
	}
}

// cpuParts returns the processor time that this process has used in user mode and in the kernel.
func cpuParts() (user, system time.Duration) {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}
