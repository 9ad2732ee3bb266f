//go:build stock

package zkreal_test

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/test/zkreal"
)

func TestStandaloneServes(t *testing.T) {
	s := zkreal.Start(t, zkreal.Config{TTL: true, Super: "super:secret"})
	if mode := s.Mode(); mode != "standalone" {
		t.Fatalf("mode %q", mode)
	}
	c, err := wire.Open(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Auth("digest", "super:secret"); err != nil {
		t.Fatal(err)
	}
	body := wire.CreateTTL("/ttl", nil, jute.WorldAnyone, jute.FlagPersistentTTL, 1000)
	if _, _, err := c.Create2(jute.OpCreateTTL, body); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetData("/zookeeper/config", []byte("x"), -1); err != nil {
		t.Fatalf("the super user may write everything, but: %v", err)
	}
}

func TestDataSurvivesKill(t *testing.T) {
	s := zkreal.Start(t, zkreal.Config{})
	c, err := wire.Open(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create("/kept", []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitServing(wire.DefaultTimeout); err != nil {
		t.Fatal(err)
	}
	c, err = wire.Open(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exists("/kept", false); err != nil {
		t.Fatal(err)
	}
}

func TestEnsembleServes(t *testing.T) {
	e := zkreal.StartEnsemble(t, 3, zkreal.Config{NoFsync: true})
	leader, err := e.WaitLeader(wire.DefaultTimeout)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range e {
		c, err := wire.Open(s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.CloseSession(); err != nil {
			t.Fatal(err)
		}
	}
	if leader.Mode() != "leader" {
		t.Fatal("the leader changed without a reason")
	}
}
