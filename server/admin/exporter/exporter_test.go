package exporter

import (
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/expect"
)

// Every counter and summary is on a page. The test fails, for example, if a page spells a name differently.
func TestEveryMeasuredNameIsShown(t *testing.T) {
	var m metrics.Set
	s := &report.Status{Now: time.Unix(1, 0)}
	s.Fill(&m, report.NeedMetrics)
	for name := range s.Counters {
		expect.That(t, slices.Contains(counterNames, name), "counter %s is not shown", name)
	}
	for name := range s.Summaries {
		expect.That(t, slices.Contains(basicNames, name) || slices.Contains(advancedNames, name),
			"summary %s is not shown", name)
	}
	for name := range s.Keyed {
		_, ok := keyedNames[name]
		expect.That(t, ok, "family %s is not shown", name)
	}
	expect.Equal(t, s.Responses, metrics.Sizes{Last: -1, Min: -1, Max: -1}, "sizes before the first")
	m.Responses.Observe(5)
	m.Responses.Observe(3)
	m.PacketsSent.Add(2)
	s.Fill(&m, 0)
	expect.That(t, s.Responses == (metrics.Sizes{Last: 3, Min: 3, Max: 5}) && s.Sent == 2, "%+v", s)
	m.Reset()
	s.Fill(&m, 0)
	expect.Equal(t, s.Responses, metrics.Sizes{Last: -1, Min: -1, Max: -1}, "sizes after a reset")
	expect.Equal(t, s.Sent, 0, "packets sent after a reset")
}

// The learners of a leader are the members that it hears from. In ZooKeeper they are the connected members.
func TestMembersThatAreDownDoNotFollow(t *testing.T) {
	heard := status.Progress{Applied: 9}
	s := &report.Status{Node: status.Node{Serving: true, ID: 2}, Mode: report.Leader}
	s.Members = []status.Member{{ID: 1, Voter: true}, {ID: 2, Voter: true, Progress: heard},
		{ID: 3, Voter: true, Progress: heard}, {ID: 4, Progress: heard}, {ID: 5}}
	got := map[string]string{}
	Lines(s, func(name, value string, _ bool) { got[name] = value })
	for name, want := range map[string]string{"learners": "2", "followers": "1", "quorum_size": "3"} {
		expect.Equal(t, got[name], want, "%s", name)
	}
}
