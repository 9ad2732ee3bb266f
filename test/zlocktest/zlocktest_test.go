package zlocktest_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/zlocktest"
)

var open = zk.WorldACL(zk.PermAll)

func TestKillSessionRemovesItsEphemerals(t *testing.T) {
	s := zlocktest.Start(t)
	victim, other := s.Connect(), s.Connect()
	must.Get(victim.Create("/mine", nil, zk.FlagEphemeral, open))(t)
	id := victim.SessionID()
	s.KillSession(id)
	found, _, err := other.Exists("/mine")
	expect.That(t, !found && err == nil, "ephemeral of a killed session: %v, %v", found, err)
	expect.That(t, !slices.Contains(s.Sessions(), id), "the session still exists")
	must.Await(t, "a new session", time.Minute, func() bool {
		return victim.SessionID() != id &&
			victim.State() == zk.StateHasSession
	})
}

func TestRestartKeepsSessionsAndNodes(t *testing.T) {
	s := zlocktest.Start(t)
	c := s.Connect()
	must.Get(c.Create("/mine", []byte("x"), zk.FlagEphemeral, open))(t)
	addr, id := s.Addr, c.SessionID()
	s.Restart()
	expect.Equal(t, s.Addr, addr, "the address changed from %s to", addr)
	data, _, err := retry(c.Get, "/mine")
	expect.That(t, err == nil && string(data) == "x", "after the restart: %q, %v", data, err)
	expect.Equal(t, c.SessionID(), id, "the session was lost")
}

func TestDisconnectKeepsTheSession(t *testing.T) {
	s := zlocktest.Start(t)
	c := s.Connect()
	id := c.SessionID()
	must.Get(c.Create("/mine", nil, zk.FlagEphemeral, open))(t)
	s.Disconnect()
	_, _, err := retry(c.Get, "/mine")
	expect.OK(t, err)
	expect.Equal(t, c.SessionID(), id, "the session was lost")
}

// retry() repeats a read while the client has no connection.
func retry(get func(string) ([]byte, *zk.Stat, error), path string) (data []byte, st *zk.Stat, err error) {
	for range 500 {
		data, st, err = get(path)
		if !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrNoServer) {
			return data, st, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return data, st, err
}

func TestVirtualTimeExpiresSilentSession(t *testing.T) {
	zlocktest.Virtual(t, func(t *testing.T, s *zlocktest.Server) {
		link := s.Link()
		c := link.Connect()
		must.Get(c.Create("/mine", nil, zk.FlagEphemeral, open))(t)
		gone := watchGone(t, s, "/mine")
		link.Cut()
		began := time.Now()
		<-gone
		if took := time.Since(began); took < 9*time.Second || took > 15*time.Second {
			t.Errorf("a session of 10 s expired after %v", took)
		}
	})
}

func TestVirtualTimeKeepsActiveSession(t *testing.T) {
	began := time.Now()
	zlocktest.Virtual(t, func(t *testing.T, s *zlocktest.Server) {
		c := s.Connect()
		id := c.SessionID()
		must.Get(c.Create("/mine", nil, zk.FlagEphemeral, open))(t)
		time.Sleep(time.Hour)
		if found, _, err := c.Exists("/mine"); !found || err != nil || c.SessionID() != id {
			t.Errorf("after an hour of pings: %v, %v", found, err)
		}
		s.Restart()
		time.Sleep(5 * time.Second)
		found, _, err := c.Exists("/mine")
		expect.That(t, found && err == nil && c.SessionID() == id, "after a restart: %v, %v", found, err)
	})
	real := time.Since(began)
	expect.That(t, real < time.Hour, "an hour of virtual time took %v", real)
}

// watchGone returns a channel that is closed when a node is deleted.
func watchGone(t *testing.T, s *zlocktest.Server, path string) <-chan struct{} {
	t.Helper()
	c := s.Connect()
	found, _, events, err := c.ExistsW(path)
	must.That(t, found && err == nil, "watch %s: %v, %v", path, found, err)
	gone := make(chan struct{})
	go func() {
		if e := <-events; e.Type == zk.EventNodeDeleted {
			close(gone)
		}
	}()
	return gone
}
