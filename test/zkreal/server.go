package zkreal

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
)

// startLimit bounds the wait for a server to serve: generous, because a busy
// machine may start several Java machines at once.
const startLimit = 90 * time.Second

// Server is one running ZooKeeper process. Its Dir holds configuration, data
// and output.
type Server struct {
	*cluster.Server
	Addr string // where clients connect

	jvm []string
}

func newServer(addr, dir string, jvm []string) *Server {
	return &Server{&cluster.Server{Kind: cluster.ZooKeeper, Client: addr, Dir: dir}, addr, jvm}
}

// Start runs a standalone server until the test ends, and waits until it
// serves.
func Start(t testing.TB, c Config) *Server {
	t.Helper()
	Require(t)
	dir, err := os.MkdirTemp("", "zkreal-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := Launch(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// Launch runs a standalone server in dir and waits until it serves. The caller
// ends it with Stop or Kill.
func Launch(dir string, c Config) (*Server, error) {
	if c.Replicated {
		e, err := launchEnsemble(dir, 1, 1, c)
		if err != nil {
			return nil, err
		}
		return e[0], e[0].WaitServing(startLimit)
	}
	ports, err := cluster.FreePorts(1)
	if err != nil {
		return nil, err
	}
	s := newServer(ports[0], dir, c.jvmFlags())
	if err := s.configure(c.file(filepath.Join(dir, "data")), ""); err != nil {
		return nil, err
	}
	if err := s.Run(); err != nil {
		return nil, err
	}
	if err := s.WaitServing(startLimit); err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}

// configure writes the files the process reads. id is the content of myid.
func (s *Server) configure(text, id string) error {
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	if id == "" { // members of an ensemble have it in their server line
		text += "clientPortAddress=" + host + "\nclientPort=" + port + "\n"
	}
	data := filepath.Join(s.Dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	files := map[string]string{"zoo.cfg": text}
	if id != "" {
		files["data/myid"] = id + "\n"
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(s.Dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Run starts the process, for the first time or again after Stop or Kill.
func (s *Server) Run() (err error) {
	if s.Args, err = cluster.ZooKeeperArgs(s.jvm, filepath.Join(s.Dir, "zoo.cfg")); err != nil {
		return err
	}
	return s.Spawn()
}

// Log returns what the process has printed.
func (s *Server) Log() string {
	b, _ := os.ReadFile(s.LogFile())
	return string(b)
}

// WaitServing waits until the server serves clients.
func (s *Server) WaitServing(limit time.Duration) error {
	return s.wait(limit, func() bool { return s.Mode() != "" })
}

func (s *Server) wait(limit time.Duration, done func() bool) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		select {
		case <-s.Exited():
			return fmt.Errorf("ZooKeeper ended while starting:\n%s", s.Log())
		default:
		}
		if done() {
			return nil
		}
	}
	return fmt.Errorf("ZooKeeper did not serve within %v:\n%s", limit, s.Log())
}
