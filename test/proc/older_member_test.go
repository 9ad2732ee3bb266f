package proc

import (
	"strings"
	"testing"
)

// TestServerOfAnOlderReleaseIsNotAdded: the log may hold what it does not
// understand, so it is refused before anything changes. With today's release it
// is added.
func TestServerOfAnOlderReleaseIsNotAdded(t *testing.T) {
	t.Parallel()
	old := BuildOlder(t)
	e := startMembers(t, 1)
	one, fourth := e.Servers[0], e.Servers[3]
	today := fourth.Args[0]
	fourth.Args[0] = old
	if err := fourth.Spawn(); err != nil {
		t.Fatal(err)
	}
	_, errs, code := e.member(one, "add", "4", fourth.Peer)
	if code != 1 || !strings.Contains(errs, "server 4 runs an older release, which does not understand what is in this cluster's log") {
		t.Errorf("%d: %s", code, errs)
	}
	if got := e.roles(one); got != "1 voter, 2 voter, 3 voter" {
		t.Errorf("after the refusal: %s", got)
	}
	if !fourth.Running() {
		t.Errorf("it has stopped: %s", fourth.LogTail())
	}
	fourth.Stop()
	fourth.Args[0] = today
	if err := fourth.Spawn(); err != nil {
		t.Fatal(err)
	}
	e.must(one, "add", "4", fourth.Peer)
	if got := e.roles(one); got != "1 voter, 2 voter, 3 voter, 4 voter" {
		t.Error(got)
	}
}
