package raftfsm

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// slowEar is an observer whose method Heard returns only when the test allows it.
type slowEar struct {
	watcher
	asked, may chan struct{}
}

func (s *slowEar) Heard(b []state.Touch, all bool) []state.Touch {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-s.may
	return s.watcher.Heard(b, all)
}

// A term ends when all of its duties have ended, so no duty runs into the next term.
func TestTermWaitsForItsDuties(t *testing.T) {
	t.Parallel()
	ear := &slowEar{asked: make(chan struct{}, 1), may: make(chan struct{})}
	var log must.Text
	n := must.Get(Start(t.Context(), Options{Observer: ear, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Fatal: func(err error) { t.Error(err) }}))(t)
	<-ear.asked
	ended := make(chan struct{})
	go func() { n.Abort(); close(ended) }()
	const over = "this server is no longer the leader"
	select {
	case <-ended:
		t.Error("it ends beside a duty of its leader")
	case <-time.After(100 * time.Millisecond):
	}
	expect.That(t, !strings.Contains(log.String(), over), "the term is over beside a duty")
	close(ear.may)
	<-ended
	expect.Has(t, log.String(), over)
}

// A leader removes the containers that were used and are empty, and the nodes whose time to live is over. It
// removes no other nodes.
func TestLeaderReapsWhatIsDue(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{SweepInterval: 5 * time.Millisecond})
	a := newAsker(t, n)
	for _, path := range []string{"/used", "/never", "/full"} {
		code := a.do(jute.OpCreateContainer, createBody(path, jute.FlagContainer))
		must.Equal(t, code, jute.OK, "create %s", path)
	}
	must.Equal(t, a.do(jute.OpCreateTTL, applied.CreateTTL("/hour", time.Hour)), jute.OK)
	must.Equal(t, a.create("/full/child"), jute.OK)
	must.Equal(t, a.create("/used/child"), jute.OK)
	must.Equal(t, a.remove("/used/child"), jute.OK)
	must.Equal(t, a.do(jute.OpCreateTTL, applied.CreateTTL("/short", time.Millisecond)), jute.OK)
	has := func(path string) (ok bool) {
		n.View(func(s *state.State) { _, ok = s.Tree().Get(path) })
		return ok
	}
	eventually(t, "both are removed", func() bool { return !has("/used") && !has("/short") })
	expect.That(t, has("/never"),
		"a node is removed that is not due: want has(\"/never\")")
	expect.That(t, has("/full/child"),
		"a node is removed that is not due: want has(\"/full/child\")")
	expect.That(t, has("/hour"), "a node is removed that is not due: want has(\"/hour\")")
}

// The operator decides whether nodes may have a time to live.
func TestNodesWithATimeToLiveWhereTheyAreAllowed(t *testing.T) {
	t.Parallel()
	for refused, want := range map[bool]jute.ErrCode{false: jute.OK, true: jute.Unimplemented} {
		n, _ := start(t, Options{NoTTL: refused})
		code := newAsker(t, n).do(jute.OpCreateTTL, applied.CreateTTL("/hour", time.Hour))
		expect.Equal(t, code, want, "refused: %v", refused)
	}
}
