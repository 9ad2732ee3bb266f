package session

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// A wait lasts until all counted work is done, even work that begins during the wait.
func TestTasksAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w tasks
		must.OK(t, w.wait(t.Context()))
		must.Equal(t, w.add(2), 2)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		must.Is(t, w.wait(ended), context.Canceled)
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- w.wait(t.Context()) }()
		}
		synctest.Wait()
		must.Equal(t, w.add(-1), 1)
		must.Equal(t, w.add(1), 2)
		must.Equal(t, w.add(-1), 1)
		synctest.Wait()
		must.Equal(t, len(done), 0, "waits that are over")
		must.Equal(t, w.add(-1), 0)
		must.OK(t, <-done)
		must.OK(t, <-done)
		must.OK(t, w.wait(ended))
		must.Equal(t, w.add(1), 1)
		must.Equal(t, w.add(-1), 0)
	})
}

// The operator's log says once why there is no connection. It says so at once if all servers have failed, and
// after a moment if only some have failed.
func TestTroublesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _, _ := withoutServer()
		var log must.Text
		k.opt.Log = slog.New(slog.NewTextHandler(&log, nil))
		tr := troubles{k: k, servers: 2, patience: time.Second, latest: map[string]error{},
			said: map[string]string{}}
		said := func(want ...string) {
			t.Helper()
			var got []string
			for line := range strings.Lines(log.String()) {
				for _, word := range []string{"one", "two", "three"} {
					if strings.Contains(line, "err="+word) {
						got = append(got, word)
					}
				}
			}
			must.List(t, got, want)
		}
		tr.add("a", errors.New("one"))
		time.Sleep(time.Second - 1)
		said()
		tr.add("a", errors.New("two"))
		time.Sleep(time.Second)
		said("two")
		tr.add("a", errors.New("two"))
		time.Sleep(time.Minute)
		said("two")
		tr.add("b", errors.New("three")) // now all servers have failed
		said("two", "three")
		tr.over()
		tr.add("a", errors.New("one"))
		tr.over()
		time.Sleep(time.Minute)
		said("two", "three")
		tr.add("a", errors.New("two"))
		time.Sleep(time.Minute)
		said("two", "three", "two")
		k.endCalls(zk.ErrClosed)
		tr.add("b", errors.New("one"))
		said("two", "three", "two")
	})
}

// Close waits until the abandoned nodes are gone, but not longer than they can exist.
func TestCloseWaitsForAbandonedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, e, clock := withoutServer()
		must.OK(t, k.awaitReaper(t.Context(), e))
		k.reaper.left.add(1)
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must.Is(t, k.awaitReaper(short, e), context.DeadlineExceeded)
		began := time.Now()
		time.AfterFunc(time.Hour, func() { k.reaper.left.add(-1) })
		must.OK(t, k.awaitReaper(t.Context(), e))
		must.Equal(t, time.Since(began), time.Hour)
		k.reaper.left.add(1)
		for name, x := range map[string]struct {
			attached, outlived, waits bool
		}{
			"attached": {true, false, true}, "attached and late": {true, true, true},
			"away": {false, false, true}, "away for long": {false, true, false},
		} {
			e.confirmed = k.Now()
			k.attached = x.attached
			if x.outlived {
				clock.pass(10*time.Second + 1)
			}
			short, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := k.awaitReaper(short, e)
			cancel()
			expect.Equal(t, err != nil, x.waits, "%s: %v", name, err)
		}
		k.reaper.left.add(-1)
	})
}

// The state follows from what the client knows of the session.
func TestStates(t *testing.T) {
	alive, dead := &Epoch{}, &Epoch{overdue: true}
	for _, x := range []struct {
		before   State
		e        *Epoch
		attached bool
		want     State
	}{
		{Connecting, nil, false, Connecting}, {Connecting, dead, true, Connecting},
		{Connecting, alive, true, Ready}, {Ready, alive, true, Ready},
		{Ready, alive, false, Suspended}, {Ready, dead, true, Lost},
		{Ready, &Epoch{over: Expired}, true, Lost}, {Suspended, dead, false, Lost},
		{Lost, alive, true, Ready}, {Over, alive, true, Over},
	} {
		k := &Keeper{state: x.before, ep: x.e, attached: x.attached}
		expect.Equal(t, k.stateNow(), x.want, "%v, %+v", x.before, x.e)
	}
	for s, want := range map[State]string{Connecting: "connecting", Over: "closed",
		Over + 1: "unknown"} {
		expect.Equal(t, s.String(), want)
	}
}

// Options.Moved is called once for each change of the state.
func TestStateIsToldWhenItChanges(t *testing.T) {
	k, _, _ := withoutServer()
	var told []string
	k.opt.Moved = func(from, to State) { told = append(told, from.String()+" "+to.String()) }
	for range 2 {
		changed := k.changed
		k.update(func() {})
		must.That(t, isClosed(changed), "the change wakes no goroutine")
	}
	k.detach()
	k.update(func() { k.attached = true })
	k.update(func() { k.state = Over })
	expect.List(t, told, []string{"connecting ready", "ready suspended", "suspended ready", "ready closed"})
}

// While another server answers, one server that is down is not reported. It is reported when the other one
// goes down, too.
func TestServerThatIsDownIsNotMentionedWhileAnotherAnswers(t *testing.T) {
	var log must.Text
	p := must.Get(faultproxy.New(server.Addr(t)))(t)
	t.Cleanup(p.Close)
	dead := must.Refused(t)
	k, _ := open(t, dead+","+p.Addr(), Options{Log: slog.New(slog.NewTextHandler(&log, nil)),
		Timeout: time.Minute}) // a busy machine must not make the other server late
	k.troubles.mu.Lock()
	k.troubles.patience = time.Hour
	k.troubles.mu.Unlock()
	for range 3 {
		n := k.Connections()
		p.Cut()
		must.Await(t, "another connection", patience, func() bool { return k.Connections() > n })
	}
	expect.That(t, !strings.Contains(log.String(), dead), "the server that is down is mentioned")
	must.Await(t, "nothing left to say", patience, func() bool {
		k.troubles.mu.Lock()
		defer k.troubles.mu.Unlock()
		return k.troubles.timer == nil && len(k.troubles.latest) == 0
	})
	p.Close()
	must.Await(t, "a word", patience, func() bool { return strings.Contains(log.String(), dead) })
}
