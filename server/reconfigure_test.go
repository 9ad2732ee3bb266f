package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/members"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The answer to a reconfig of two running servers depends on the new configuration, on the servers that run,
// and on the client's rights.
func TestReconfigOfARunningCluster(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 2, slog.New(slog.DiscardHandler))
	id, led := e.leader()
	other := 3 - id
	absent := fmt.Sprintf("server.3=%s:1:participant;127.0.0.1:1", must.Refused(t))
	leave := options.ReconfigRequest{Version: -1, Leaving: fmt.Sprint(other), May: true}
	try := func(what string, r options.ReconfigRequest, want jute.ErrCode) {
		t.Helper()
		code, known := led.reconfigure(r)
		expect.That(t, known, "%s: %v, known: %v", what, code, known)
		expect.Equal(t, code, want, "%s: exit code", what)
	}
	try("the last but one voter leaves", leave, jute.BadArguments)
	led.o.LoneVoter = true
	try("a client without the right", options.ReconfigRequest{Version: -1, Leaving: leave.Leaving}, jute.NoAuth)
	try("another version", options.ReconfigRequest{Version: 7, Leaving: leave.Leaving, May: true},
		jute.BadVersion)
	two := fmt.Sprintf("server.%d=%s:7:participant;127.0.0.1:1,%s", id, e.peers[id], absent)
	try("without the right, and no majority runs", options.ReconfigRequest{Version: -1, Members: two},
		jute.NoAuth)
	try("no majority runs", options.ReconfigRequest{Version: -1, Members: two, May: true},
		jute.NewConfigNoQuorum)
	words := fmt.Sprintf("server.%d=%s:7:participant;127.0.0.1:9", other, e.peers[other])
	try("other words of a member", options.ReconfigRequest{Version: -1, Joining: words, May: true}, jute.OK)
	expect.Has(t, wishes{led.Node()}.Config(), words)
	led.reconfiguring.Lock()
	try("beside another reconfig", leave, jute.ReconfigInProgress)
	led.reconfiguring.Unlock()
	try("the last but one voter leaves, where one may stay", leave, jute.OK)
	left, _ := members.ParseConfig(wishes{led.Node()}.Config())
	expect.List(t, slices.Collect(maps.Keys(left)), []uint32{id}, "servers that are left")
}

// If a server ends before an operator's change has an outcome, the change may have taken effect.
func TestChangeOfTheViewMayHaveTakenEffect(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 2, slog.New(slog.DiscardHandler))
	id, led := e.leader()
	must.OK(t, e.servers[3-id].Close(context.Background()))
	hello := state.SessionBody{Timeout: 10_000, Owner: id, Addr: "operator"}
	told := make(chan error, 1)
	go func() {
		_, err := viewSource{Instance: led, Server: led.Clients}.Do(context.Background(),
			state.Request{Op: state.OpCreateSession, Body: hello.Append(nil)})
		told <- err
	}()
	for end := time.Now().Add(time.Minute); led.Node().Status().Pending == 0; time.Sleep(time.Millisecond) {
		must.That(t, time.Now().Before(end), "the request is not under way")
	}
	led.Node().Abort()
	err := <-told
	must.Fails(t, err, "a change that no majority has")
	expect.Has(t, err.Error(), "it is not known whether the change took effect")
}

// If the server cannot do what its options ask for, Start returns an error that names the reason.
func TestStartRefusesWhatItCannotHave(t *testing.T) {
	t.Parallel()
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	used := taken.Addr().String()
	for want, o := range map[string]Options{
		"no such file":              {PeerTLS: tlsfiles.Names{Flag: "peer-tls", Cert: "no", Key: "no", CA: "no"}},
		"address already in use":    {ClientAddr: used},
		"minimum session timeout":   {MinSessionTimeout: time.Nanosecond},
		"in use":                    {ClientAddr: "127.0.0.1:0", AdminAddr: used},
		"needs a TLS configuration": {SecureAddr: "127.0.0.1:0"},
		"unknown four-letter word":  {FourLetterWords: "help"},
		"log-store":                 {LogStore: "paper", SecureAddr: "127.0.0.1:0", ClientTLS: new(tls.Config)},
	} {
		i, err := Start(t.Context(), o)
		if err == nil {
			i.Close(context.Background())
			t.Errorf("a server starts: %q expected", want)
			continue
		}
		expect.Has(t, err.Error(), want)
	}
}

// A server that cannot be sure of its own state stops serving clients, and reports the failure to its
// program.
func TestServerThatCannotGoOnSaysSo(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is broken")
	var told error
	i, c := start(t, Options{Test: func(o *raftfsm.Options) { o.Fatal = func(err error) { told = err } }})
	i.raftOptions().Fatal(broken)
	expect.Is(t, told, broken)
	<-i.Failed()
	expect.Fails(t, expect.Err(c.Create("/a", nil, 0)), "a write of a server that has failed")
}
