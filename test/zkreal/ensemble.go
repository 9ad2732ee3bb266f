package zkreal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
)

// Ensemble is several servers that form one cluster. Server i has id i+1.
type Ensemble []*Server

// StartEnsemble runs an ensemble of n servers until the test ends, and waits
// until all of them serve.
func StartEnsemble(t testing.TB, n int, c Config) Ensemble {
	t.Helper()
	e := StartPart(t, n, n, c)
	for _, s := range e {
		if err := s.WaitServing(startLimit); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// StartPart runs only the first running servers of an ensemble of n, and does
// not wait: without a majority they never serve, or only reads.
func StartPart(t testing.TB, n, running int, c Config) Ensemble {
	t.Helper()
	Require(t)
	dir, err := os.MkdirTemp("", "zkreal-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	e, err := launchEnsemble(dir, n, running, c)
	for _, s := range e {
		t.Cleanup(s.Kill)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// WaitReadOnly waits until the server serves reads only.
func (s *Server) WaitReadOnly() error {
	return s.wait(startLimit, func() bool { return s.Mode() == "read-only" })
}

// Leader returns the member that leads, or nil.
func (e Ensemble) Leader() *Server {
	for _, s := range e {
		if s.Mode() == "leader" {
			return s
		}
	}
	return nil
}

// Addrs returns the client addresses of all members, separated by commas.
func (e Ensemble) Addrs() string {
	var list []string
	for _, s := range e {
		list = append(list, s.Addr)
	}
	return strings.Join(list, ",")
}

// WaitLeader waits until one member leads.
func (e Ensemble) WaitLeader(limit time.Duration) (*Server, error) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if s := e.Leader(); s != nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no leader within %v", limit)
}

// launchEnsemble configures n members and starts the first running of them.
func launchEnsemble(dir string, n, running int, c Config) (Ensemble, error) {
	var members strings.Builder
	addrs := make([]string, n)
	for i := range n {
		list, err := cluster.FreePorts(3)
		if err != nil {
			return nil, err
		}
		var port [3]string
		for k := range port {
			port[k] = strings.TrimPrefix(list[k], "127.0.0.1:")
		}
		addrs[i] = list[2]
		fmt.Fprintf(&members, "server.%d=127.0.0.1:%s:%s:participant;127.0.0.1:%s\n", i+1, port[0], port[1], port[2])
	}
	var e Ensemble
	for i := range running {
		s := newServer(addrs[i], filepath.Join(dir, fmt.Sprint(i+1)), c.jvmFlags())
		if c.ReadOnly {
			s.jvm = append(s.jvm, "-Dreadonlymode.enabled=true")
		}
		text := c.file(filepath.Join(s.Dir, "data"))
		if n == 1 {
			text += "standaloneEnabled=false\n"
		}
		if err := s.configure(text+members.String(), fmt.Sprint(i+1)); err != nil {
			return e, err
		}
		if err := s.Run(); err != nil {
			return e, err
		}
		e = append(e, s)
	}
	return e, nil
}
