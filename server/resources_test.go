package server

import (
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/expect"
)

func TestResourcesAreJudged(t *testing.T) {
	t.Parallel()
	node := func(syncs uint64, took time.Duration) status.Node {
		return status.Node{Syncs: int64(syncs), SyncTime: took}
	}
	for _, tc := range []struct {
		name string
		s    report.Status
		want string
	}{
		{"well", report.Status{Node: node(10, time.Second/10), OpenFiles: 10, MaxFiles: 20000}, ""},
		{"nothing known", report.Status{MaxFiles: -1}, ""},
		{"slow", report.Status{Node: node(2, 625*time.Millisecond)}, "a sync of the log takes 313ms on average"},
		{"full", report.Status{OpenFiles: 900, MaxFiles: 1000}, "900 of 1000 files are open: raise the limit"},
		{"few", report.Status{OpenFiles: 10, MaxFiles: 100}, "may open only 100 files"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := strings.Join(resourceNotices(&tc.s), "; ")
			expect.Has(t, got, tc.want, "notices")
			expect.Equal(t, got == "", tc.want == "", "whether there is no notice in %q", got)
		})
	}
}

// The leader reports if the loss of one more voter would stop the cluster. A new leader first gives the other
// voters time to find it.
func TestLastMajorityIsTold(t *testing.T) {
	t.Parallel()
	const last = 5000
	for _, tc := range []struct {
		name    string
		applied []uint64 // the index that each voter has applied; the first is the leader's
		leads   time.Duration
		mode    report.Mode
		want    string
	}{
		{"three of three", []uint64{last, last, last}, time.Hour, report.Leader, ""},
		{"two of three", []uint64{last, last, 0}, time.Hour, report.Leader, "2 of 3 voters follow: one more loss stops " +
			"the cluster; start server 3, or replace it (zlock member replace)"},
		{"one is far behind", []uint64{last, 1, last}, time.Hour, report.Leader, "2 of 3 voters follow: one more loss " +
			"stops the cluster; start server 2, or replace it (zlock member replace)"},
		{"a new leader", []uint64{last, last, 0}, time.Second, report.Leader, ""},
		{"a follower, which does not know", []uint64{last, 0, 0}, 0, report.Follower, ""},
		{"four of five", []uint64{last, last, last, last, 0}, time.Hour, report.Leader, ""},
		{"three of five", []uint64{last, last, last, 0, 0}, time.Hour, report.Leader, "3 of 5 voters follow: one more " +
			"loss stops the cluster; start server 4, 5, or replace it (zlock member replace)"},
		{"two of two", []uint64{last, last}, time.Hour, report.Leader, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &report.Status{Mode: tc.mode, Node: status.Node{ID: 1, Last: last, Leads: tc.leads}}
			for i, applied := range tc.applied {
				m := status.Member{ID: uint32(i + 1), Voter: true}
				m.Applied = applied
				s.Members = append(s.Members, m)
			}
			s.Members = append(s.Members, status.Member{ID: 9}) // an observer that does not run must not count
			expect.Equal(t, lossNotice(s), tc.want)
		})
	}
}
