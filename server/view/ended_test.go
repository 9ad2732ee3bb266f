package view

import (
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients"
)

// However many clients close their sessions at once, few are looked at; none
// that ended otherwise is passed over, and the next look begins behind all.
func TestManyClosedSessionsAreLittleWork(t *testing.T) {
	var list []clients.EndedSession // the newest first
	expired := 0
	for zxid := int64(1000); zxid > 0; zxid-- {
		e := clients.EndedSession{Zxid: zxid, Cause: state.EndClosed}
		if zxid%100 == 0 && zxid < 1000 {
			e.Cause = state.EndExpired
			expired++
		}
		list = append(list, e)
	}
	looks := worthALook(list)
	if len(looks) != closedLooks+expired {
		t.Errorf("%d looks at %d closed and %d expired sessions", len(looks), 1000-expired, expired)
	}
	if looks[0].Zxid != 1000 {
		t.Errorf("the next look begins behind %d", looks[0].Zxid)
	}
	for i, e := range looks {
		if i > 0 && e.Zxid >= looks[i-1].Zxid {
			t.Errorf("%d after %d", e.Zxid, looks[i-1].Zxid)
		}
		if e.Cause == state.EndExpired {
			expired--
		}
	}
	if expired != 0 {
		t.Errorf("%d expired sessions are passed over", expired)
	}
}
