package proc

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// script is test/cluster.sh in its own process group, as a terminal starts it.
type script struct {
	t      *testing.T
	cmd    *exec.Cmd
	ended  chan error
	client int // first client port
	must.Text
}

// freeRow returns the first of three free ports next to each other.
func freeRow(t *testing.T) int {
	t.Helper()
	for range 100 {
		list := must.Get(cluster.FreePorts(1))(t)
		_, port, _ := net.SplitHostPort(list[0])
		first, _ := strconv.Atoi(port)
		if cluster.Reserve(first+1) && cluster.Reserve(first+2) {
			return first
		}
	}
	t.Fatal("no three free ports in a row")
	return 0
}

// startScript starts the script in a new directory, or in the directory of the script `before`.
func startScript(t *testing.T, before *script) *script {
	t.Helper()
	file := must.Get(filepath.Abs("../cluster.sh"))(t)
	s := &script{t: t, cmd: exec.Command("sh", file), ended: make(chan error, 1)}
	if before != nil {
		s.cmd.Dir, s.cmd.Env, s.client = before.cmd.Dir, before.cmd.Env, before.client
	} else {
		s.client = freeRow(t)
		s.cmd.Dir = t.TempDir()
		s.cmd.Env = append(os.Environ(), "ZLOCKD="+cluster.Build(t), fmt.Sprint("ZLOCKD_CLUSTER_CLIENT=", s.client),
			fmt.Sprint("ZLOCKD_CLUSTER_PEER=", freeRow(t)), fmt.Sprint("ZLOCKD_CLUSTER_ADMIN=", freeRow(t)))
	}
	s.cmd.Stdout, s.cmd.Stderr = s, s
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must.OK(t, s.cmd.Start())
	go func() { s.ended <- s.cmd.Wait() }()
	t.Cleanup(func() { syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) })
	return s
}

// server() returns the process id of one of the servers.
func (s *script) server(id int) int {
	s.t.Helper()
	entries := must.Get(os.ReadDir("/proc"))(s.t)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		group, err := syscall.Getpgid(pid)
		if err == nil && group == s.cmd.Process.Pid &&
			bytes.Contains(line, fmt.Appendf(nil, "--id\x00%d\x00", id)) {
			return pid
		}
	}
	s.t.Fatalf("server %d does not run", id)
	return 0
}

// ready() waits until all three servers serve.
func (s *script) ready() {
	s.t.Helper()
	must.Await(s.t, "all servers serve", time.Minute, func() bool {
		return strings.Count(s.String(), "zlockd ready") >= 3
	})
}

// serving() counts the servers that answer.
func (s *script) serving() (n int) {
	for i := range 3 {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", s.client+i), time.Second)
		if err != nil {
			continue
		}
		c.SetDeadline(time.Now().Add(time.Second))
		io.WriteString(c, "ruok")
		if b, _ := io.ReadAll(c); string(b) == "imok" {
			n++
		}
		c.Close()
	}
	return n
}

// end() waits for the script's end and returns how long it took and its error.
func (s *script) end() (time.Duration, error) {
	s.t.Helper()
	at := time.Now()
	select {
	case err := <-s.ended:
		return time.Since(at), err
	case <-time.After(time.Minute):
		s.t.Fatalf("the script does not end:\n%s", s)
		return 0, nil
	}
}

// TestClusterScript runs what `make cluster` runs: three servers. They serve, stop in order at Ctrl-C or at a
// signal to the script alone, and find their data again. When one of them ends, all three end. A server that
// the script did not start is not affected.
func TestClusterScript(t *testing.T) {
	other := cluster.Run(t, cluster.Options{}).Servers[0]
	var s *script
	for _, test := range []struct {
		name string
		stop func() error
	}{
		{"Ctrl-C", func() error { return syscall.Kill(-s.cmd.Process.Pid, syscall.SIGINT) }},
		{"SIGTERM to the script", func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }},
		{"SIGINT to the script alone", func() error { return s.cmd.Process.Signal(syscall.SIGINT) }},
	} {
		warned := true // tried again: a pause of the machine can also cause a warning, but not each time
		for try := 0; try < 5 && warned; try++ {
			if test.name == "Ctrl-C" {
				s = nil // the next time, start without data
			}
			s = startScript(t, s)
			s.ready()
			must.Await(t, test.name+": three servers answer", time.Minute, func() bool { return s.serving() == 3 })
			must.OK(t, test.stop())
			took, err := s.end()
			t.Logf("%s: ended after %v", test.name, took.Round(10*time.Millisecond))
			if expect.OK(t, err, "%s", test.name) {
				expect.Equal(t, strings.Count(s.String(), "msg=stopped server="), 3, "%s: count of msg=stopped server=",
					test.name)
				expect.Has(t, s.String(), "all three are stopped", "%s", test.name)
			}
			warned = test.name == "Ctrl-C" && strings.Contains(s.String(), "level=WARN")
			n := s.serving()
			expect.Equal(t, n, 0, "%s: %d servers still answer", test.name, n)
		}
		expect.That(t, !warned, "Ctrl-C makes the servers log warnings:\n%s", s)
	}
	formed := strings.Contains(s.String(), "new cluster formed")
	expect.That(t, !formed, "the data was not found again")
	s = startScript(t, s)
	s.ready()
	must.OK(t, syscall.Kill(s.server(2), syscall.SIGKILL))
	took, err := s.end()
	t.Logf("one server killed: ended after %v", took.Round(10*time.Millisecond))
	if expect.Fails(t, err) {
		expect.Equal(t, s.serving(), 0, "one server killed: serving")
	}
	expect.That(t, other.Mode() != "", "another server was stopped too")
}
