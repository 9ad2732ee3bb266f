//go:build stock

package cluster_test

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

func TestZooKeeperIsWhatItIsTold(t *testing.T) {
	s := cluster.StartZooKeeper(t, "extendedTypesEnabled=true", cluster.Super("super:secret"))
	must.Await(t, "mode", time.Minute, func() bool { return s.Mode() == "standalone" })
	c := must.Get(wire.Open(s.Client))(t)
	must.OK(t, c.Auth("digest", "super:secret"))
	body := wire.CreateTTL("/ttl", nil, jute.WorldAnyone, jute.FlagPersistentTTL, 1e6)
	_, _, err := c.Create2(jute.OpCreateTTL, body)
	must.OK(t, err)
	must.OK(t, expect.Err(c.SetData("/zookeeper/config", []byte("x"), -1)),
		"the super user may write everything")
	s.Kill()
	must.OK(t, s.Spawn())
	must.OK(t, s.WaitReady())
	c = must.Get(wire.Open(s.Client))(t)
	must.OK(t, expect.Err(c.Exists("/ttl", false)), "not kept over a kill")
}
