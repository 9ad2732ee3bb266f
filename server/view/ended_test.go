package view

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/test/expect"
)

// However many clients close their sessions at once, few are looked at; none
// that ended otherwise is passed over, and the next look begins behind all.
func TestManyClosedSessionsAreLittleWork(t *testing.T) {
	var list []observe.EndedSession // the newest first
	expired := 0
	for zxid := int64(1000); zxid > 0; zxid-- {
		e := observe.EndedSession{Zxid: zxid, Cause: state.EndClosed}
		if zxid%100 == 0 && zxid < 1000 {
			e.Cause = state.EndExpired
			expired++
		}
		list = append(list, e)
	}
	looks := worthALook(list)
	expect.Equal(t, len(looks), closedLooks+expired,
		"looks at %d closed and %d expired sessions", 1000-expired, expired)
	expect.Equal(t, looks[0].Zxid, 1000, "the next look begins behind")
	for i, e := range looks {
		if i > 0 && e.Zxid >= looks[i-1].Zxid {
			t.Errorf("%d after %d", e.Zxid, looks[i-1].Zxid)
		}
		if e.Cause == state.EndExpired {
			expired--
		}
	}
	expect.Equal(t, expired, 0, "expired sessions are passed over")
}

type leads struct{ Source }

func (leads) Status(admin.Need) *admin.Status { return &admin.Status{Mode: admin.Leader} }

// A server that starts reads in its log of sessions that expired before. They
// have been told of.
func TestOnlyNewsIsLogged(t *testing.T) {
	var log strings.Builder
	v := &View{source: leads{}, began: time.UnixMilli(5000), o: Options{
		Log: slog.New(slog.NewTextHandler(&log, nil))}}
	v.logExpired(&observe.EndedSession{Session: 1, Cause: state.EndExpired, Time: time.UnixMilli(4000)}, nil)
	v.logExpired(&observe.EndedSession{Session: 2, Cause: state.EndExpired, Time: time.UnixMilli(6000)}, nil)
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "session=0x2") {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}
