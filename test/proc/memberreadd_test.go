package proc

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/must"
)

// A server that is removed and added again need not be restarted in between:
// it opens a new stream of requests, and serves.
func TestServerAddedAgainWhileItRunsServes(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 0)
	one, three := e.Servers[0], e.Servers[2]
	e.must(one, "remove", "3")
	must.Await(t, "it serves no more", 5*time.Second, func() bool { return three.Mode() == "" })
	e.must(one, "add", "3", three.Peer)
	e.must(one, "promote", "3")
	must.Await(t, "it serves again", 10*time.Second, func() bool { return three.Mode() != "" })
	must.Get(dialZK(t, "", three).Create("/again", nil, 0, zk.WorldACL(zk.PermAll)))(t)
	must.Await(t, "its client address is told", 5*time.Second, func() bool {
		b, _, err := dialZK(t, "", one).Get("/zookeeper/config")
		return err == nil && len(b) > 0 && strings.Contains(string(b), three.Client)
	})
}
