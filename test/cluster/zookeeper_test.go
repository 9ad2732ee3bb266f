//go:build stock

package cluster_test

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

func TestZooKeeperIsWhatItIsTold(t *testing.T) {
	s := cluster.StartZooKeeper(t, cluster.ZooConfig{TTL: true, Super: "super:secret"})
	if mode := s.Mode(); mode != "standalone" {
		t.Fatalf("mode %q", mode)
	}
	c, err := wire.Open(s.Client)
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
	s.Kill()
	if err := s.Spawn(); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitReady(); err != nil {
		t.Fatal(err)
	}
	if c, err = wire.Open(s.Client); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exists("/ttl", false); err != nil {
		t.Fatal("not kept over a kill:", err)
	}
}
