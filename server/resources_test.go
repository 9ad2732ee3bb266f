package server

import (
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/test/expect"
)

func TestResourcesAreJudged(t *testing.T) {
	node := func(syncs uint64, took time.Duration) status.Node {
		return status.Node{Syncs: int64(syncs), SyncTime: took}
	}
	for _, tc := range []struct {
		name string
		s    admin.Status
		want string
	}{
		{"well", admin.Status{Node: node(10, time.Second/10), OpenFiles: 10, MaxFiles: 20000}, ""},
		{"nothing known", admin.Status{MaxFiles: -1}, ""},
		{"slow", admin.Status{Node: node(2, 625*time.Millisecond)}, "a sync of the log takes 313ms on average"},
		{"full", admin.Status{OpenFiles: 900, MaxFiles: 1000}, "900 of 1000 files are open: raise the limit"},
		{"few", admin.Status{OpenFiles: 10, MaxFiles: 100}, "may open 100 files only"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := strings.Join(resourceNotices(&tc.s), "; ")
			expect.Has(t, got, tc.want, "notices")
			expect.Equal(t, got == "", tc.want == "", "whether there is no notice in %q", got)
		})
	}
}
