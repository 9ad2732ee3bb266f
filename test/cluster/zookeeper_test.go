//go:build stock

package cluster_test

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

func TestZooKeeperIsWhatItIsTold(t *testing.T) {
	s := cluster.StartZooKeeper(t, cluster.ZooConfig{TTL: true, Super: "super:secret"})
	if mode := s.Mode(); mode != "standalone" {
		t.Fatalf("mode %q", mode)
	}
	c, err := wire.Open(s.Client)
	must.OK(t, err)
	must.OK(t, c.Auth("digest", "super:secret"))
	body := wire.CreateTTL("/ttl", nil, jute.WorldAnyone, jute.FlagPersistentTTL, 1000)
	if _, _, err := c.Create2(jute.OpCreateTTL, body); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetData("/zookeeper/config", []byte("x"), -1); err != nil {
		t.Fatalf("the super user may write everything, but: %v", err)
	}
	s.Kill()
	must.OK(t, s.Spawn())
	must.OK(t, s.WaitReady())
	if c, err = wire.Open(s.Client); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exists("/ttl", false); err != nil {
		t.Fatal("not kept over a kill:", err)
	}
}
