//go:build stock

package stock

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
)

// asked is a request to reconfigure: joining and leaving servers, or members.
type asked struct {
	joining, leaving, members string
	version                   int64
}

// answered is what came of it: the error, or the members but the first three,
// whose addresses are each ensemble's own.
type answered struct{ anybody, super string }

// TestReconfigAsZooKeeper asks a ZooKeeper ensemble and a cluster of zlockd the
// same, as anybody and as the super user, one after the other.
func TestReconfigAsZooKeeper(t *testing.T) {
	ownServers(t)
	const observer, voter = "server.9=127.0.0.1:34101:34102:observer;34103",
		"server.4=127.0.0.1:34401:34402;34403"
	with := func(change ...string) string { return strings.NewReplacer(change...).Replace(observer) }
	list := []asked{
		{version: -1}, {version: 7}, {version: 0}, {joining: "garbage", version: 7},
		{joining: "some thing", version: -1}, {joining: "server.x=127.0.0.1:1:2;3", version: -1},
		{joining: with("server.9", "foo.9"), version: -1},
		{joining: with("server.9", "9"), version: -1}, {joining: with("server.9", "server.0", "34101", "34107"),
			version: -1}, {joining: with("server.9=", " server.9 = "), version: -1},
		{joining: with(";34103", ""), version: -1}, {joining: with(":34102:observer", ""), version: -1},
		{joining: with("34102", "34101"), version: -1},
		{joining: with("observer", "king"), version: -1}, {joining: with("34101", "a"), version: -1},
		{joining: with("34101", "99999"), version: -1},
		{joining: with(";", "|127.0.0.1:34105:34106;"), version: -1}, {joining: with("127.0.0.1", "10.9.8.7") +
			",server.8=10.9.8.7:34101:34105:observer;34106", version: -1},
		{joining: observer + ",server.8=127.0.0.1:34101:34105:observer;34106", leaving: "8,9", version: 7},
		{leaving: "h3", version: -1}, {leaving: " 99 ", version: -1}, {leaving: "-5", version: -1},
		{leaving: "1,2,3", version: -1}, {leaving: "2,3", version: -1},
		{members: "garbage", version: -1}, {members: "server.1=localhost:33101:33111;33121", version: -1},
		{members: observer + "\nfoo=bar", version: -1},
		{members: "server.7=127.0.0.1:1:2;3,server.8=127.0.0.1:4:5;6,server.9=127.0.0.1:7:8;9", version: -1},
		{joining: observer, version: -1}, {joining: with("observer;34103", "OBSERVER;localhost:34104"),
			version: -1}, {joining: voter, leaving: "9,0", version: -1},
		{joining: "server.5=127.0.0.1:34501:34502;34503", version: -1},
		{joining: "server.6=127.0.0.1:34601:34602;34603", version: -1},
		{joining: strings.Replace(voter, ";", ":observer;", 1), version: -1},
		{joining: strings.NewReplacer(";", ":observer;", "34401", "34411").Replace(voter), version: -1},
		{joining: voter, leaving: "4", version: -1}, {leaving: "4,5", version: -1},
	}
	answers := map[cluster.Kind][]answered{}
	for _, kind := range []cluster.Kind{cluster.ZooKeeper, cluster.Zlockd} {
		e := cluster.Run(t, cluster.Options{Kind: kind, Nodes: 3, Config: []string{"reconfigEnabled=true"},
			Flags: []string{"--super-digest", superPw},
			JVM:   []string{"-Dzookeeper.DigestAuthenticationProvider.superDigest=" + superPw}})
		anybody, super := reconfigurer(t, e, ""), reconfigurer(t, e, "super:pw")
		for _, q := range list {
			answers[kind] = append(answers[kind], answered{anybody(q), super(q)})
		}
		e.Close()
	}
	for i, q := range list {
		if real, ours := answers[cluster.ZooKeeper][i], answers[cluster.Zlockd][i]; real != ours {
			t.Errorf("%+v\nZooKeeper %+v\nzlockd    %+v", q, real, ours)
		}
	}
}

// reconfigurer returns a client with an identity.
func reconfigurer(t *testing.T, e *cluster.Ensemble, who string) func(asked) string {
	t.Helper()
	c, _, err := zk.Connect(strings.Split(e.Addrs(), ","), 10*time.Second, zk.WithLogger(quiet{}))
	must.OK(t, err)
	t.Cleanup(c.Close)
	if who != "" {
		must.OK(t, c.AddAuth("digest", []byte(who)))
	}
	words := func(s string) []string {
		if s == "" {
			return nil
		}
		return strings.Split(s, ",")
	}
	return func(q asked) string {
		var err error
		if q.members != "" {
			_, err = c.Reconfig(words(q.members), q.version)
		} else {
			_, err = c.IncrementalReconfig(words(q.joining), words(q.leaving), q.version)
		}
		if err != nil {
			return err.Error()
		}
		text, stat, err := c.Get("/zookeeper/config")
		if err != nil {
			return err.Error()
		}
		lines := strings.Split(string(text), "\n")
		version := lines[len(lines)-1]
		if version != fmt.Sprintf("version=%x", stat.Mzxid) {
			return "mzxid is not the " + version
		}
		lines = slices.DeleteFunc(lines[:len(lines)-1], func(l string) bool {
			return l[:9] >= "server.1=" &&
				l[:9] <= "server.3="
		})
		return strings.Join(lines, " ")
	}
}
