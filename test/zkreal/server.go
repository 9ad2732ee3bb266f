package zkreal

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startLimit bounds the wait for a server to serve: generous, because a busy
// machine may start several Java machines at once.
const startLimit = 90 * time.Second

// Server is one running ZooKeeper process.
type Server struct {
	Addr string // where clients connect
	Dir  string // configuration, data and output

	jvm    []string
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
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
	// A port found free may be taken by somebody else before the server binds
	// it; then another one is tried.
	var last error
	for range 5 {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		s := &Server{Addr: addr, Dir: dir, jvm: c.jvmFlags()}
		if err := s.configure(c.file(filepath.Join(dir, "data")), ""); err != nil {
			return nil, err
		}
		if err := s.Run(); err != nil {
			return nil, err
		}
		if last = s.WaitServing(startLimit); last == nil {
			return s, nil
		}
		s.Kill()
		if !strings.Contains(s.Log(), "Address already in use") {
			break
		}
	}
	return nil, last
}

const logConfig = `log4j.rootLogger=WARN, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
`

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
	files := map[string]string{"zoo.cfg": text, "log4j.properties": logConfig}
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
func (s *Server) Run() error {
	out, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	classes := strings.Join([]string{s.Dir, jarZooKeeper, jarBinding, jarLog}, string(os.PathListSeparator))
	args := append(append([]string{}, s.jvm...), "-cp", classes,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.Dir, "zoo.cfg"))
	cmd := exec.Command("java", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, out, out
	cmd.SysProcAttr = childAttr()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start ZooKeeper: %w", err)
	}
	exited := make(chan struct{})
	s.cmd, s.exited = cmd, exited
	go func() {
		cmd.Wait()
		close(exited)
	}()
	return nil
}

func (s *Server) logFile() string { return filepath.Join(s.Dir, "out.log") }

// Log returns what the process has printed.
func (s *Server) Log() string {
	b, _ := os.ReadFile(s.logFile())
	return string(b)
}

// Pid returns the process id.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Signal sends the process a signal.
func (s *Server) Signal(sig syscall.Signal) error { return s.cmd.Process.Signal(sig) }

// Stop asks the process to end and waits for it.
func (s *Server) Stop() {
	s.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(10 * time.Second):
		s.Kill()
	}
}

// Kill ends the process at once and waits for it.
func (s *Server) Kill() {
	s.cmd.Process.Kill()
	<-s.exited
}

// Mode returns the mode that the server says it is in, such as "standalone" or
// "leader", and "" while it does not serve.
func (s *Server) Mode() string {
	text, err := FourLetter(s.Addr, "srvr")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(text) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}

// WaitServing waits until the server serves clients.
func (s *Server) WaitServing(limit time.Duration) error {
	return s.wait(limit, func() bool { return s.Mode() != "" })
}

func (s *Server) wait(limit time.Duration, done func() bool) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		select {
		case <-s.exited:
			return fmt.Errorf("ZooKeeper ended while starting:\n%s", s.Log())
		default:
		}
		if done() {
			return nil
		}
	}
	return fmt.Errorf("ZooKeeper did not serve within %v:\n%s", limit, s.Log())
}

// FourLetter asks the server at addr a four-letter word.
func FourLetter(addr, word string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	if len(b) > 0 && errors.Is(err, syscall.ECONNRESET) {
		err = nil
	}
	return string(b), err
}

// freeAddr returns a loopback address nobody listens on at the moment.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
