package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
)

func TestRestartOrderPutsTheLeaderLast(t *testing.T) {
	_, env, _ := newFakeMembers(t)
	out, errs, code := runIn(t, env, "restart-order", "-o", "plain")
	if want := "10\th10:2888\tnon-voter\n3\th3:2888\tvoter\n2\th2:2888\tleader\n"; out != want || errs != "" ||
		code != 0 {
		t.Errorf("%q %q %d", out, errs, code)
	}
}

// Without --wait a server that does not answer is not waited for.
func TestRestartOrderGivesUp(t *testing.T) {
	ctx, answer := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ctx.Done() }))
	defer srv.Close()
	defer answer()
	ended := make(chan int)
	go func() {
		_, _, code := runIn(t, map[string]string{"ZLOCK_ADMIN": strings.TrimPrefix(srv.URL, "http://")},
			"restart-order", "--timeout", "0.3")
		ended <- code
	}()
	select {
	case code := <-ended:
		expect.Equal(t, code, exitNoSession, "exit code")
	case <-time.After(15 * time.Second): // one request alone is given 20
		answer()
		<-ended
		t.Error("it waits on")
	}
}

// One after the other is named, and none while another is missing. The last one
// too must serve before the command ends.
func TestRestartOrderWaitsForEach(t *testing.T) {
	f, env, _ := newFakeMembers(t)
	for id := range f.voter {
		f.far[id] = &status.Progress{Applied: 10, Heard: status.Ago(1), Starts: 1}
	}
	f.restarts = true
	// --timeout is for an answer, not for those who restart servers.
	out, errs, code := runIn(t, env, "restart-order", "--wait", "--timeout", "0.5", "-o", "plain")
	if want := "10\th10:2888\tnon-voter\n3\th3:2888\tvoter\n2\th2:2888\tleader\n"; out != want || code != 0 {
		t.Errorf("%q %d", out, code)
	}
	for id, far := range f.far {
		expect.That(t, far.Waits == "" && far.Starts == 2,
			"it ends while server %d waits: %s", id, far.Waits)
	}
	for _, want := range []string{"server 10 is being restarted", "server 10 was restarted",
		"server 3 was restarted", "server 2 was restarted"} {
		expect.Has(t, errs, want, "is missing in")
	}
}
