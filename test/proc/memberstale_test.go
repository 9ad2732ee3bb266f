package proc

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A member that was removed and still runs does not keep others out: a server
// that lost its disk asks it first, and is not stopped by what it says.
func TestRemovedServerThatRunsKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 1)
	one, two, three, four := e.Servers[0], e.Servers[1], e.Servers[2], e.Servers[3]
	must.OK(t, four.Spawn())
	e.must(three, "add", "4", four.Peer)
	e.must(three, "remove", "2")
	must.Await(t, "the removed server serves no more", 10*time.Second, func() bool { return two.Mode() == "" })

	one.Kill()
	must.OK(t, os.RemoveAll(one.Data()))
	must.Await(t, "it can be removed", 20*time.Second, func() bool {
		_, _, code := e.member(three, "remove", "1")
		return code == 0
	})
	// Not there yet: promote says so, and does not only count.
	e.post(three, `{"op":"add","id":1,"addr":"`+one.Peer+`"}`)
	if _, errs, code := e.member(three, "-w", "1", "promote", "1"); code != 1 ||
		!strings.Contains(errs, "connection refused") {
		t.Errorf("promote a server that does not run: %d %s", code, errs)
	}
	must.OK(t, one.Spawn())
	e.must(three, "promote", "1")
	must.OK(t, one.WaitReady())
	expect.Equal(t, e.roles(one), "1 voter, 3 voter, 4 voter")

	// A server that was removed in its absence learns of it when it comes back.
	one.Kill()
	must.Await(t, "it can be removed", 20*time.Second, func() bool {
		_, _, code := e.member(three, "remove", "1")
		return code == 0
	})
	must.OK(t, one.Spawn())
	must.Await(t, "it says that it was removed", 20*time.Second, func() bool {
		return strings.Contains(ready(one), "this server was removed from the cluster")
	})
}
