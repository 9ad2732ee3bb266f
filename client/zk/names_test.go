package zk_test

import (
	"testing"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
)

func TestStatesAndEventsHaveNames(t *testing.T) {
	for what, want := range map[interface{ String() string }]string{
		zk.Disconnected: "disconnected", zk.Connected: "connected", zk.Expired: "expired", zk.Closed: "closed",
		zk.Closed + 1: "unknown",
		zk.EventLost:  "watch lost", zk.EventOver: "session over", zk.EventResumed: "connection resumed",
	} {
		expect.Equal(t, what.String(), want)
	}
}
