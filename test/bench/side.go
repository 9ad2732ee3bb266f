package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// sessionTimeout is the timeout of every session of the benchmark: long, so that connections
// may rest during measurements of the other side.
const sessionTimeout = 40 * time.Second

// side is one of the two compared sides.
type side struct {
	name     string
	options  cluster.Options
	steady   *cluster.Ensemble // servers that run through all rounds; nil for external servers
	company  []*wire.Pipe      // sessions without work at the steady servers
	own      *cluster.Ensemble // the servers of one point, for all its rounds
	external []string
	floor    *floor // not nil: this side is the floor
	dirs     int
	base     string // directory of the side's data
	next     atomic.Int64
}

// newSide reads a specification: zlockd, zlockd@/path/to/binary, zookeeper,
// addrs=host:port,… or cmd=command with {id}, {dir}, {client}, {peer}, {admin}
// and {peers} filled in.
func newSide(spec string, c *config) (*side, error) {
	s := &side{name: spec, options: cluster.Options{Nodes: c.nodes, Observers: c.observers,
		ReadyTimeout: 10 * time.Minute}}
	switch {
	case spec == "zookeeper":
		s.name = "ZooKeeper"
		s.options.Kind = cluster.ZooKeeper
		s.options.JVM = strings.Fields(c.zookeeperJVM)
	case spec == "zlockd" || strings.HasPrefix(spec, "zlockd@"):
		s.options.Kind = cluster.Zlockd
		s.options.Flags = strings.Fields(c.zlockdFlags)
		_, s.options.Binary, _ = strings.Cut(spec, "@")
	case strings.HasPrefix(spec, "addrs="):
		s.external = strings.Split(strings.TrimPrefix(spec, "addrs="), ",")
	case strings.HasPrefix(spec, "cmd="):
		s.options.Kind = cluster.ZooKeeper // so the server counts as ready when its answer to srvr has a mode
		s.options.Command = strings.Fields(strings.TrimPrefix(spec, "cmd="))
	default:
		return nil, fmt.Errorf("no such side: %q", spec)
	}
	if s.options.Kind == cluster.Zlockd && s.options.Binary == "" && s.external == nil {
		bin, err := cluster.Binary()
		if err != nil {
			return nil, err
		}
		s.options.Binary = bin
	}
	var err error
	s.base, err = os.MkdirTemp(c.dir, "zlockd-bench-")
	return s, err
}

// ensure() starts the steady servers if they do not run.
func (s *side) ensure() error {
	if s.external != nil || s.steady != nil {
		return nil
	}
	var err error
	if s.steady, err = s.fresh(nil); err == nil {
		s.company, err = accompany(s.addrs())
	}
	return err
}

// rest() stops the steady servers, for points that need the machine or its memory for their own
// servers.
func (s *side) rest() {
	if s.steady != nil {
		dropAll(s.company)
		s.steady.Close()
		os.RemoveAll(s.steady.Dir)
		s.steady = nil
	}
}

// endOwn ends the servers that a point has started.
func (s *side) endOwn() {
	if s.own != nil {
		s.own.Close()
		s.own = nil
	}
}

// prepare() lays out new servers without starting them; change() may alter the options.
func (s *side) prepare(change func(*cluster.Options)) (*cluster.Ensemble, error) {
	if s.external != nil {
		return nil, errNotHere
	}
	o := s.options
	s.dirs++
	o.Dir = filepath.Join(s.base, fmt.Sprint(s.dirs))
	o.Flags = append([]string(nil), o.Flags...)
	o.JVM = append([]string(nil), o.JVM...)
	if change != nil {
		change(&o)
	}
	return cluster.Prepare(o)
}

// fresh() starts new servers.
func (s *side) fresh(change func(*cluster.Options)) (*cluster.Ensemble, error) {
	e, err := s.prepare(change)
	if err != nil {
		return nil, err
	}
	if err := e.StartAll(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func (s *side) close() {
	s.rest()
	s.abandon()
}

// abandon() stops the servers and removes their directories. It leaves the fields of the side as they are,
// because a point that still runs may use them.
func (s *side) abandon() {
	for _, e := range []*cluster.Ensemble{s.steady, s.own} {
		if e != nil {
			e.Close()
		}
	}
	if s.floor != nil {
		s.floor.close()
	}
	os.RemoveAll(s.base)
}

// addrs() returns the client addresses of the steady servers.
func (s *side) addrs() []string {
	if s.external != nil {
		return s.external
	}
	return addrsOf(s.steady)
}

// addrsOf returns the client addresses of all servers. If some servers are observers, it returns only theirs.
func addrsOf(e *cluster.Ensemble) (list []string) {
	for _, v := range serving(e) {
		list = append(list, v.Client)
	}
	return list
}

func serving(e *cluster.Ensemble) []*cluster.Server {
	if o := e.Observers(); len(o) > 0 {
		return o
	}
	return e.Servers
}

// pids() returns the server processes; nil for external servers.
func (s *side) pids() []int {
	if s.floor != nil {
		return s.floor.pids()
	}
	if s.steady == nil {
		return nil
	}
	return s.steady.Pids()
}

// leader() returns the process that leads a cluster; nil if there is no cluster.
func (s *side) leader() (pids []int) {
	if s.steady != nil && len(s.steady.Servers) > 1 {
		if l := s.steady.Leader(); l != nil {
			return []int{l.Pid()}
		}
	}
	return nil
}

// settings() describes the options of the side.
func (s *side) settings() string {
	var b strings.Builder
	if s.external != nil {
		fmt.Fprintf(&b, "* %s: running servers %s\n", s.name, strings.Join(s.external, ", "))
	} else {
		fmt.Fprintf(&b, "* %s: `%s`\n", s.name, s.clean(strings.Join(s.steady.Servers[0].Args, " ")))
		if cfg, err := os.ReadFile(filepath.Join(s.steady.Servers[0].Dir, "zoo.cfg")); err == nil {
			fmt.Fprintf(&b, "  * zoo.cfg: `%s`\n", s.clean(strings.Join(strings.Fields(string(cfg)), " ")))
		}
	}
	for line := range strings.Lines(cluster.Word(s.addrs()[0], "srvr")) {
		if strings.HasPrefix(line, "Zookeeper version") {
			fmt.Fprintf(&b, "  * `%s`\n", strings.TrimSpace(line))
		}
	}
	fmt.Fprintf(&b, "  * conf: `%s`\n", s.clean(strings.Join(strings.Fields(cluster.Word(s.addrs()[0], "conf")),
		" ")))
	if s.options.Kind == cluster.ZooKeeper {
		if v, err := exec.Command("java", "-version").CombinedOutput(); err == nil {
			line, _, _ := strings.Cut(string(v), "\n")
			fmt.Fprintf(&b, "  * %s\n", line)
		}
	}
	return b.String()
}

// clean() shortens the paths of temporary directories.
func (s *side) clean(text string) string {
	text = strings.ReplaceAll(text, s.base, "DIR")
	if s.options.Binary != "" {
		text = strings.ReplaceAll(text, s.options.Binary, "zlockd")
	}
	return text
}

// reachable() checks at the start that an external server answers.
func (s *side) reachable() error {
	for _, a := range s.external {
		c, err := net.DialTimeout("tcp", a, 3*time.Second)
		if err != nil {
			return err
		}
		c.Close()
	}
	return nil
}
