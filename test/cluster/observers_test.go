package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestObserversHaveNoVote(t *testing.T) {
	e := must.Get(Prepare(Options{Dir: t.TempDir(), Binary: "zlockd", Nodes: 3, Observers: 2, Spare: 1}))(t)
	must.That(t, len(e.Servers) == 6, "%d servers", len(e.Servers))
	expect.That(t, slices.Equal(e.Observers(), e.Servers[3:5]), "%v", e.Observers())
	for _, s := range e.Servers {
		for peer := range strings.SplitSeq(s.Args[slices.Index(s.Args, "--peers")+1], ",") {
			id, _, _ := strings.Cut(peer, "=")
			expect.That(t, strings.HasSuffix(peer, ":observer") == (id == "4" || id == "5"), "%s", peer)
		}
	}
}
