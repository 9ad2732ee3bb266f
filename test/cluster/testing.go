package cluster

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// Run starts an ensemble for a test and waits until all its servers serve, except Options.Spare ones. The
// servers end with the test. If the test fails, it shows their last log lines.
func Run(t testing.TB, o Options) *Ensemble {
	t.Helper()
	e := LayOut(t, o)
	e.StartAll()
	return e
}

// Three is Run for three servers of zlockd with these flags.
func Three(t testing.TB, flags ...string) *Ensemble {
	t.Helper()
	return Run(t, Options{Nodes: 3, Flags: flags})
}

// Build builds zlockd and returns its path. If ZLOCKD_BIN is set, Build returns the path in ZLOCKD_BIN
// instead.
func Build(t testing.TB) string {
	t.Helper()
	skipShort(t)
	return must.Get(Binary())(t)
}

func skipShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs servers as processes: make test-all")
	}
}

// LayOut is Run without starting the servers.
func LayOut(t testing.TB, o Options) *Ensemble {
	t.Helper()
	skipShort(t)
	e := must.Get(Prepare(o))(t)
	e.attach(t)
	return e
}

// attach() ends the ensemble at the end of a test, and makes the test fail if a server cannot start.
func (e *Ensemble) attach(t testing.TB) {
	e.t = t
	for _, s := range e.Servers {
		s.t = t
	}
	t.Cleanup(func() {
		for _, s := range e.Servers {
			if t.Failed() && s.cmd != nil {
				t.Logf("server %d:\n%s", s.ID, s.Log(40))
			}
		}
		e.Close()
	})
}

// Start starts the process without waiting for it to serve. Start and the methods below work only for servers
// of Run and LayOut.
func (s *Server) Start() {
	s.t.Helper()
	must.OK(s.t, s.Spawn())
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

// Signal sends a signal, for instance SIGSTOP, to the process, which must run.
func (s *Server) Signal(sig syscall.Signal) {
	s.t.Helper()
	must.That(s.t, s.Running(), "server %d does not run", s.ID)
	must.OK(s.t, s.cmd.Process.Signal(sig), "signal %v to server %d", sig, s.ID)
}

// WaitServing waits until the server serves clients.
func (s *Server) WaitServing(limit time.Duration) {
	s.t.Helper()
	must.Await(s.t, fmt.Sprintf("server %d serves", s.ID), limit, func() bool { return s.Mode() != "" })
}

// WaitServing waits until each server in turn serves clients.
func (e *Ensemble) WaitServing(limit time.Duration) {
	e.t.Helper()
	for _, s := range e.Servers {
		s.WaitServing(limit)
	}
}

// Set changes a flag of a server.
func (s *Server) Set(flag, value string) {
	for i, a := range s.Args {
		if a == flag {
			s.Args[i+1] = value
		}
	}
}

// AwaitLog waits until the server has logged a text.
func (s *Server) AwaitLog(text string) {
	s.t.Helper()
	must.Await(s.t, fmt.Sprintf("server %d logs %q", s.ID, text), 30*time.Second, func() bool {
		return strings.Contains(s.Log(1<<30), text)
	})
}

// Metric returns a value of /metrics.
func (s *Server) Metric(name string) int64 {
	s.t.Helper()
	r := must.Get(http.Get("http://" + s.Admin + "/metrics"))(s.t)
	defer r.Body.Close()
	text := must.Get(io.ReadAll(r.Body))(s.t)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n := must.Get(strconv.ParseFloat(strings.TrimSpace(value), 64))(s.t)
			return int64(n)
		}
	}
	s.t.Fatalf("server %d has no metric %s", s.ID, name)
	return 0
}

// Others returns all servers except one.
func (e *Ensemble) Others(but *Server) (list []*Server) {
	for _, s := range e.Servers {
		if s != but {
			list = append(list, s)
		}
	}
	return list
}

// WaitLeader waits for a leader and returns it.
func (e *Ensemble) WaitLeader() *Server {
	e.t.Helper()
	return must.Get(e.AwaitLeader())(e.t)
}

// hashes() returns the digests that the server remembers, by zxid.
func (s *Server) hashes() map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(s.Word("hash")) {
		if zxid, sum, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			m[zxid] = sum
		}
	}
	return m
}

// SameState waits until all servers have applied the same entries, and compares the digests
// that each remembers.
func (e *Ensemble) SameState() {
	e.t.Helper()
	zxid := func(s *Server) string {
		_, rest, _ := strings.Cut(s.Word("srvr"), "Zxid: ")
		z, _, _ := strings.Cut(rest, "\n")
		return z
	}
	must.Await(e.t, "the servers reach the same zxid", 30*time.Second, func() bool {
		seen := map[string]bool{}
		for _, s := range e.Servers {
			seen[zxid(s)] = true
		}
		return len(seen) == 1 && !seen[""]
	})
	want := map[string]string{}
	compared := 0
	for _, s := range e.Servers {
		m := s.hashes() // empty until the first digest after the server got its state
		for z, sum := range m {
			if w, ok := want[z]; ok && w != sum {
				e.t.Errorf("digests differ at zxid %s: server %d has %s, another %s", z, s.ID, sum, w)
			} else if ok {
				compared++
			}
		}
		maps.Copy(want, m)
	}
	if compared == 0 {
		e.t.Fatal("no two servers show a digest of the same zxid")
	}
	e.t.Logf("%d digests compared", compared)
}
