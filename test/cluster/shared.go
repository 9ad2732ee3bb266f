package cluster

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

// Shared is an ensemble that the tests of a package share: it starts when a test first asks for it, and
// TestMain closes it. Each test uses a directory of its own.
type Shared struct {
	Options func() Options

	once sync.Once
	e    *Ensemble
	err  error
	dirs atomic.Int64
}

// Ensemble starts the ensemble on the first call, and returns it.
func (s *Shared) Ensemble(t testing.TB) *Ensemble {
	t.Helper()
	s.once.Do(func() { s.e, s.err = Start(s.Options()) })
	must.OK(t, s.err, "the servers that the tests share")
	return s.e
}

// Addr returns the address of the first server for clients.
func (s *Shared) Addr(t testing.TB) string {
	t.Helper()
	return s.Ensemble(t).Servers[0].Client
}

// Dir returns a path that no other test uses.
func (s *Shared) Dir(t testing.TB) string {
	name := strings.NewReplacer("/", "_", " ", "_").Replace(t.Name())
	return fmt.Sprintf("/t/%s-%d", name, s.dirs.Add(1))
}

// Close ends the servers if a test has asked for them.
func (s *Shared) Close() {
	if s.e != nil {
		s.e.Close()
	}
}

// ShortSessions are the options of an ensemble with a short tick, so that session timeouts of half a second
// and more are granted. If zlockd is the only server, it keeps its state in memory.
func ShortSessions(kind Kind, nodes int) Options {
	o := Options{Kind: kind, Nodes: nodes, Dev: nodes == 1}
	if kind == ZooKeeper {
		o.Config = []string{"tickTime=200", "minSessionTimeout=400", "maxSessionTimeout=60000"}
		o.JVM = []string{"-Dznode.container.checkIntervalMs=500"}
	} else {
		o.Flags = []string{"--tick-time", "200ms", "--min-session-timeout", "400ms",
			"--max-session-timeout", "60s"}
	}
	return o
}
