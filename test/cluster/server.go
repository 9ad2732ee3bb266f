package cluster

import (
	"bufio"
	"errors"
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
)

// Kind says which server an ensemble runs.
type Kind string

// The servers this package can start.
const (
	Zlockd    Kind = "zlockd"
	ZooKeeper Kind = "zookeeper"
	Other     Kind = "other" // started by Options.Command; it serves as soon as it listens
)

// Options describe an ensemble. The zero value is one zlockd with default
// settings in a temporary directory.
type Options struct {
	Kind  Kind
	Nodes int // number of servers with a vote; default 1
	Spare int // number of further servers, which could join; Run does not start them
	// Observers is the number of servers that follow without a vote; they are listed after the Nodes.
	Observers int
	Dir       string // where data and logs go; default a temporary directory, removed by Close
	Dev       bool   // whether zlockd keeps its state in memory only

	Binary string   // zlockd's binary; default: built from this module, or ZLOCKD_BIN
	Flags  []string // more flags of zlockd; {id} in a flag stands for the server's id
	Hosts  []Host   // where the servers run, instead of Nodes
	Config []string // more lines of zoo.cfg, which zlockd reads too; the last line for a key counts
	JVM    []string // more arguments of ZooKeeper's JVM

	// Command replaces the command of every server. The words {id}, {dir},
	// {client}, {port} (of the client address), {peer}, {admin}, {peers} and {peer-urls} in it are filled in.
	Command []string

	ReadyTimeout time.Duration // how long servers may take until they serve; default 90 s
}

// Host is the machine on which a server runs, and from which its clients dial. The zero value is this
// machine.
type Host struct {
	Addr string   // address of the servers on this host; default loopback
	Exec []string // the command that runs another command on the host
	Dial func(addr string, limit time.Duration) (net.Conn, error)
}

// Ensemble is a running set of servers.
type Ensemble struct {
	Kind    Kind
	Dir     string
	Servers []*Server
	ownDir  bool
	spare   int

	observers int
	t         testing.TB // set by Run and LayOut
}

// Observers returns the servers without a vote.
func (e *Ensemble) Observers() []*Server {
	n := len(e.Servers) - e.spare
	return e.Servers[n-e.observers : n]
}

// Server is one process of an ensemble.
type Server struct {
	ID                  int
	Kind                Kind
	Client, Peer, Admin string // host:port
	Election            string // ZooKeeper's third port
	Dir                 string // directory of the server's data and its log
	Args                []string

	host    Host
	t       testing.TB // set by Run and LayOut
	timeout time.Duration
	cmd     *exec.Cmd
	ready   chan struct{} // closed when zlockd has written its first line
	exited  chan struct{}
}

// Start starts an ensemble and waits until every server serves clients.
func Start(o Options) (*Ensemble, error) {
	e, err := Prepare(o)
	if err != nil {
		return nil, err
	}
	if err := e.StartAll(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Prepare lays out an ensemble without starting it.
func Prepare(o Options) (*Ensemble, error) {
	if o.Kind == "" {
		o.Kind = Zlockd
	}
	if len(o.Hosts) == 0 {
		o.Hosts = make([]Host, max(o.Nodes, 1)+o.Observers+o.Spare)
	}
	if o.ReadyTimeout == 0 {
		o.ReadyTimeout = patience
	}
	e := &Ensemble{Kind: o.Kind, Dir: o.Dir, spare: o.Spare, observers: o.Observers}
	if e.Dir == "" {
		dir, err := os.MkdirTemp("", "zlockd-cluster-")
		if err != nil {
			return nil, err
		}
		e.Dir, e.ownDir = dir, true
	}
	ports, err := FreePorts(4 * len(o.Hosts))
	if err != nil {
		return nil, err
	}
	for i, h := range o.Hosts {
		p := ports[4*i : 4*i+4]
		for k := range p {
			if h.Addr != "" {
				_, port, _ := net.SplitHostPort(p[k])
				p[k] = net.JoinHostPort(h.Addr, port)
			}
		}
		s := &Server{ID: i + 1, Kind: o.Kind, Client: p[0], Peer: p[1], Admin: p[2], Election: p[3],
			host: h, timeout: o.ReadyTimeout}
		s.Dir = filepath.Join(e.Dir, string(o.Kind)+"-"+strconv.Itoa(s.ID))
		if err := os.MkdirAll(s.Dir, 0o700); err != nil {
			return nil, err
		}
		e.Servers = append(e.Servers, s)
	}
	switch {
	case len(o.Command) > 0:
		e.commandArgs(o)
	case o.Kind == Zlockd:
		err = e.zlockdArgs(o)
	case o.Kind == ZooKeeper:
		err = e.zookeeperArgs(o)
	default:
		err = fmt.Errorf("no server of kind %q", o.Kind)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// StartAll starts every server that is not running, except spare ones, and waits until all serve. The
// ensemble of a test ends the test instead of returning an error.
func (e *Ensemble) StartAll() error {
	err := e.startAll()
	if err != nil && e.t != nil {
		e.t.Helper()
		e.t.Fatal(err)
	}
	return err
}

func (e *Ensemble) startAll() error {
	var started []*Server
	for _, s := range e.Servers[:len(e.Servers)-e.spare] {
		if s.Running() {
			continue
		}
		if err := s.Spawn(); err != nil {
			return err
		}
		started = append(started, s)
	}
	// Wait for all servers at once. If one cannot start, its error must come first, not those of the servers
	// that wait for it.
	ready := make(chan error, len(started))
	for _, s := range started {
		go func() { ready <- s.WaitReady() }()
	}
	for range started {
		if err := <-ready; err != nil {
			return err
		}
	}
	return nil
}

// Addrs returns the client addresses as a connect string.
func (e *Ensemble) Addrs() string {
	var list []string
	for _, s := range e.Servers {
		list = append(list, s.Client)
	}
	return strings.Join(list, ",")
}

// Leader returns the server that leads or stands alone. It returns nil if no server does.
func (e *Ensemble) Leader() *Server {
	for _, s := range e.Servers {
		switch s.Mode() {
		case "leader", "standalone":
			return s
		}
	}
	return nil
}

// AwaitLeader waits half a minute for a leader.
func (e *Ensemble) AwaitLeader() (*Server, error) {
	for range 1500 {
		if s := e.Leader(); s != nil {
			return s, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, errors.New("no leader")
}

// Pids returns the ids of the processes.
func (e *Ensemble) Pids() (list []int) {
	for _, s := range e.Servers {
		list = append(list, s.Pid())
	}
	return list
}

// Close kills the servers and removes the directory if Start made it.
func (e *Ensemble) Close() {
	for _, s := range e.Servers {
		s.Kill()
	}
	if e.ownDir && os.Getenv("ZLOCKD_KEEP_DIRS") == "" {
		os.RemoveAll(e.Dir)
	}
}

// Spawn starts the process and returns at once.
func (s *Server) Spawn() error {
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.Command(s.Args[0], s.Args[1:]...)
	s.cmd.Dir = s.Dir
	s.cmd.Stderr = log
	s.cmd.SysProcAttr = childAttr()
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.Args[0], err)
	}
	s.ready, s.exited = make(chan struct{}), make(chan struct{})
	go func(cmd *exec.Cmd, ready, exited chan struct{}) {
		r := bufio.NewReader(out)
		if _, err := r.ReadString('\n'); err == nil {
			close(ready)
		}
		io.Copy(io.Discard, r)
		cmd.Wait()
		close(exited)
	}(s.cmd, s.ready, s.exited)
	return nil
}

// WaitReady waits until the spawned process serves clients.
func (s *Server) WaitReady() error {
	ready, limit := s.ready, time.After(s.timeout)
	var ask <-chan time.Time
	if s.Kind != Zlockd { // these do not report when they serve: ask them again and again
		ready, ask = nil, time.Tick(20*time.Millisecond)
	}
	for {
		select {
		case <-ready:
			return nil
		case <-ask:
			if s.serves() {
				return nil
			}
		case <-s.exited:
			return fmt.Errorf("%s ended before it was ready:\n%s", s.Args[0], s.Log(40))
		case <-limit:
			return fmt.Errorf("%s not ready after %v:\n%s", s.Args[0], s.timeout, s.Log(40))
		}
	}
}

// Running reports whether the process was started and has not ended.
func (s *Server) Running() bool {
	if s.exited == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// Exited is closed when the process that was spawned last has ended.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Pid returns the process id. It returns 0 if the process does not run.
func (s *Server) Pid() int {
	if !s.Running() {
		return 0
	}
	return s.cmd.Process.Pid
}

// Kill ends the process without warning and waits for its end.
func (s *Server) Kill() { s.end(syscall.SIGKILL, time.Minute) }

// Stop asks the process to end and waits for its end. After a minute Stop kills the process.
func (s *Server) Stop() { s.end(syscall.SIGTERM, time.Minute) }

func (s *Server) end(sig syscall.Signal, patience time.Duration) {
	if !s.Running() {
		return
	}
	s.cmd.Process.Signal(sig)
	select {
	case <-s.exited:
	case <-time.After(patience):
		s.cmd.Process.Kill()
		<-s.exited
	}
}

// Data is the server's data directory.
func (s *Server) Data() string { return filepath.Join(s.Dir, "data") }

// LogFile is where the server's own log goes.
func (s *Server) LogFile() string { return filepath.Join(s.Dir, "log.txt") }

// Log returns the server's last log lines.
func (s *Server) Log(lines int) string {
	b, err := os.ReadFile(s.LogFile())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Dial opens a connection to the client port.
func (s *Server) Dial(limit time.Duration) (net.Conn, error) {
	if s.host.Dial != nil {
		return s.host.Dial(s.Client, limit)
	}
	return net.DialTimeout("tcp", s.Client, limit)
}

// serves() reports whether the server serves clients.
func (s *Server) serves() bool {
	if s.Kind != Other {
		return s.Mode() != ""
	}
	c, err := s.Dial(time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// Word sends a four-letter word to `addr` and returns the answer. On any error it returns an empty answer.
func Word(addr, w string) string { return (&Server{Client: addr}).Word(w) }

// Mode returns the mode that the server at `addr` reports; see Server.Mode.
func Mode(addr string) string { return (&Server{Client: addr}).Mode() }

// Word sends a four-letter word to the server.
func (s *Server) Word(w string) string {
	c, err := s.Dial(time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, w); err != nil {
		return ""
	}
	b, _ := io.ReadAll(c)
	return string(b)
}

// Mode returns the mode that the server reports in its answer to srvr. The mode is empty while the server
// does not serve.
func (s *Server) Mode() string {
	for line := range strings.Lines(s.Word("srvr")) {
		if m, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(m)
		}
	}
	return ""
}
