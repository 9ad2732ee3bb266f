package main

import (
	"path/filepath"
	"testing"

	"github.com/zlockd/zlockd/cmd/zlock/internal/supervise"
	"github.com/zlockd/zlockd/test/must"
)

// While a long COMMAND runs, its orphans do not stay in the process table after their end.
func TestAdoptedOrphansDoNotStay(t *testing.T) {
	t.Parallel()
	c := startTalker(t, filepath.Join(built.dir, "zlock"), "run", "--foreground", "/l", "--", "sh", "-c",
		"(true & true &); echo up; read x")
	c.await(t, "up")
	guard := guardOf(t, c.Process.Pid)
	must.Await(t, "they are gone", soon, func() bool {
		return len(supervise.ChildrenOf(guard))+len(supervise.ChildrenOf(c.Process.Pid)) == 2
	})
	must.OK(t, c.in.Close())
	c.Wait()
}
