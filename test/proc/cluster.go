package proc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// Build builds zlockd and returns its path. ZLOCKD_BIN names another one.
func Build(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs servers as processes: make test-all")
	}
	bin, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// Server is one zlockd process, which may be started again and again.
type Server struct {
	*cluster.Server
	Dir  string // its data; that of the process holds its log
	host host
	t    testing.TB
}

// Cluster is a set of servers on this machine.
type Cluster struct {
	t       testing.TB
	Servers []*Server
}

// host is where a server runs and its clients dial from. The zero value is
// this machine.
type host struct {
	addr string   // default loopback
	exec []string // runs a command there
	dial func(addr string, limit time.Duration) (net.Conn, error)
}

// Dial opens a connection to the client port.
func (s *Server) Dial(limit time.Duration) (net.Conn, error) {
	if s.host.dial != nil {
		return s.host.dial(s.Client, limit)
	}
	return net.DialTimeout("tcp", s.Client, limit)
}

// Open opens a session of 30 seconds.
func (s *Server) Open() (*wire.Conn, error) {
	nc, err := s.Dial(5 * time.Second)
	if err != nil {
		return nil, err
	}
	c := wire.New(nc)
	if err := c.Connect(wire.NewSession(30000)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// StartCluster starts n servers, which form one cluster, and waits until they
// serve. They are killed when the test ends.
func StartCluster(t testing.TB, n int, args ...string) *Cluster {
	t.Helper()
	c := Prepare(t, n, args...)
	c.StartAll()
	return c
}

// Prepare lays n servers out on this machine without starting them.
func Prepare(t testing.TB, n int, args ...string) *Cluster {
	t.Helper()
	return LayOut(t, make([]host, n), args...)
}

// LayOut prepares a cluster without starting it.
func LayOut(t testing.TB, hosts []host, args ...string) *Cluster {
	t.Helper()
	bin := Build(t)
	c := &Cluster{t: t}
	ports, err := cluster.FreePorts(3 * len(hosts))
	if err != nil {
		t.Fatal(err)
	}
	var peers []string
	for i, h := range hosts {
		at := func(k int) string {
			if h.addr == "" {
				return ports[3*i+k]
			}
			_, port, _ := net.SplitHostPort(ports[3*i+k])
			return net.JoinHostPort(h.addr, port)
		}
		dir := t.TempDir()
		s := &Server{Server: &cluster.Server{ID: i + 1, Kind: cluster.Zlockd, Client: at(0), Peer: at(1), Admin: at(2), Dir: dir},
			Dir: filepath.Join(dir, "data"), host: h, t: t}
		c.Servers = append(c.Servers, s)
		peers = append(peers, fmt.Sprintf("%d=%s", s.ID, s.Peer))
	}
	for _, s := range c.Servers {
		s.Args = append(slices.Clone(s.host.exec), bin)
		s.Args = append(append(s.Args, "--id", fmt.Sprint(s.ID), "--client-addr", s.Client, "--admin-addr", s.Admin,
			"--data-dir", s.Dir, "--max-client-cnxns", "0", "--4lw-whitelist", "*"), args...)
		if len(hosts) > 1 {
			s.Args = append(s.Args, "--peers", strings.Join(peers, ","), "--peer-addr", s.Peer)
		}
	}
	return c
}

// StartAll starts every server and waits until all of them serve.
func (c *Cluster) StartAll() {
	c.t.Helper()
	for _, s := range c.Servers {
		s.Start()
	}
	for _, s := range c.Servers {
		s.WaitServing(30 * time.Second)
	}
}

// Others returns all servers but one.
func (c *Cluster) Others(but *Server) (list []*Server) {
	for _, s := range c.Servers {
		if s != but {
			list = append(list, s)
		}
	}
	return list
}

// Start starts the process without waiting for it to serve.
func (s *Server) Start() {
	s.t.Helper()
	if err := s.Spawn(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		s.Server.Kill()
		if s.t.Failed() {
			s.t.Logf("server %d:\n%s", s.ID, s.Log(40))
		}
	})
}

// Log returns the last lines the server has logged.
func (s *Server) Log(lines int) string {
	b, err := os.ReadFile(s.LogFile())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Signal sends a signal to the process.
func (s *Server) Signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.Server.Signal(sig); err != nil {
		s.t.Fatalf("signal %v to server %d: %v", sig, s.ID, err)
	}
}

// Kill ends the process at once and waits until it is gone.
func (s *Server) Kill() {
	s.t.Helper()
	s.Signal(syscall.SIGKILL)
	<-s.Exited()
}

// Stop ends the process in order and waits until it is gone.
func (s *Server) Stop() {
	s.t.Helper()
	s.Signal(syscall.SIGTERM)
	select {
	case <-s.Exited():
	case <-time.After(30 * time.Second):
		s.t.Fatalf("server %d did not stop", s.ID)
	}
}

// Word asks a four-letter word.
func (s *Server) Word(word string) (string, error) {
	c, err := s.Dial(time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

// Mode returns what srvr names the server's mode, empty while it does not
// serve.
func (s *Server) Mode() string {
	text, err := s.Word("srvr")
	if err != nil {
		return ""
	}
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		if mode, ok := strings.CutPrefix(sc.Text(), "Mode: "); ok {
			return mode
		}
	}
	return ""
}

// Hash returns the digests the server remembers, by zxid.
func (s *Server) Hash() (map[string]string, error) {
	text, err := s.Word("hash")
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		if zxid, sum, ok := strings.Cut(sc.Text(), ": "); ok {
			m[zxid] = sum
		}
	}
	return m, nil
}

// WaitServing waits until the server serves clients.
func (s *Server) WaitServing(limit time.Duration) {
	s.t.Helper()
	for deadline := time.Now().Add(limit); s.Mode() == ""; {
		if time.Now().After(deadline) {
			s.t.Fatalf("server %d does not serve after %v:\n%s", s.ID, limit, s.Log(20))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Leader waits until there is a leader and returns it.
func (c *Cluster) Leader() *Server {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		for _, s := range c.Servers {
			if m := s.Mode(); m == "leader" || m == "standalone" {
				return s
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.t.Fatal("no leader in 30 s")
	return nil
}

// SameState waits until all servers have applied the same and compares the
// digests each of them remembers.
func (c *Cluster) SameState() {
	c.t.Helper()
	zxid := func(s *Server) string {
		text, _ := s.Word("srvr")
		_, rest, _ := strings.Cut(text, "Zxid: ")
		z, _, _ := strings.Cut(rest, "\n")
		return z
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		same := true
		for _, s := range c.Servers {
			same = same && zxid(s) != "" && zxid(s) == zxid(c.Servers[0])
		}
		if same {
			break
		}
		if time.Now().After(deadline) {
			c.t.Fatal("the servers do not reach the same zxid")
		}
		time.Sleep(50 * time.Millisecond)
	}
	want := map[string]string{}
	compared := 0
	for _, s := range c.Servers {
		m, err := s.Hash()
		if err != nil {
			c.t.Fatal(err)
		}
		for z, sum := range m {
			if w, ok := want[z]; ok && w != sum {
				c.t.Errorf("digests differ at zxid %s: server %d has %s, another %s", z, s.ID, sum, w)
			} else if ok {
				compared++
			}
			want[z] = sum
		}
	}
	c.t.Logf("%d digests compared", compared)
}
