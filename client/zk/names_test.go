package zk_test

import (
	"testing"

	"github.com/zlockd/zlockd/client/zk"
)

func TestStatesAndEventsHaveNames(t *testing.T) {
	for what, want := range map[interface{ String() string }]string{
		zk.Disconnected: "disconnected", zk.Connected: "connected", zk.Expired: "expired", zk.Closed: "closed",
		zk.Closed + 1: "unknown",
		zk.EventLost:  "watch lost", zk.EventOver: "session over", zk.EventResumed: "connection resumed",
	} {
		if got := what.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
