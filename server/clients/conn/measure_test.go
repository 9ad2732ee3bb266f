package conn

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// The server counts each end of a connection by its reason, and logs it at the level of that reason.
func TestEndsOfConnectionsAreCounted(t *testing.T) {
	ours := []ends.Reason{ends.Idle, ends.Stalled, ends.Length, ends.Malformed, ends.Slow, ends.Watches,
		ends.Events, ends.Auth,
		ends.UnknownOp, ends.Plain, ends.TLS}
	for why := ends.Client; why < ends.Reasons; why++ {
		for _, x := range []struct {
			name           string
			session, asked int64
			said           bool
		}{{name: "with a session", session: 7}, {name: "with a line", session: 7, said: true},
			{name: "without a session"}, {name: "that came back", asked: 9}} {
			var log must.Text
			all := &slog.HandlerOptions{Level: slog.LevelDebug}
			s, c := quiet(t, options.Options{Logger: slog.New(slog.NewTextHandler(&log, all))})
			c.from.Host, c.session, c.asked, c.reader.said = "10.0.0.1", x.session, x.asked, x.said
			s.connEnded(c, why)
			name := fmt.Sprintf("%v, of one %s", why, x.name)
			expect.Equal(t, s.Counts.Ends[why].Load(), 1, "%s", name)
			dropped, late := int64(0), int64(0)
			if slices.Contains(ours, why) {
				dropped = 1
			}
			if why == ends.Handshake {
				late = 1
			}
			expect.Equal(t, s.Metrics.ConnectionDropped.Load(), dropped,
				"%s: s.metrics.ConnectionDropped.Load()", name)
			expect.Equal(t, s.Metrics.SessionlessExpired.Load(), late,
				"%s: s.metrics.SessionlessExpired.Load()", name)
			want := []string{"level=INFO", `msg="connection refused"`, "reason=", why.String()}
			switch {
			case why == ends.Client || why == ends.Session || why == ends.Word || x.said:
				want = []string{"level=DEBUG", `msg="connection ended"`, "session=0x" + fmt.Sprint(x.session), why.String()}
			case x.session != 0:
				want = []string{"level=INFO", `msg="connection closed"`, "session=0x7", why.String()}
			case x.asked != 0 && why == ends.Gone:
				want = []string{"level=INFO", `msg="connection refused"`, "its session has ended", "session=0x9"}
			}
			for _, part := range append(want, "addr=10.0.0.1") {
				expect.Has(t, log.String(), part, "%s", name)
			}
			expect.Equal(t, strings.Count(log.String(), "\n"), 1, "%s: lines", name)
		}
	}
}

// The server describes a connection to operators in each of its states.
func TestStatesOfAConnectionAreDescribed(t *testing.T) {
	now := time.Unix(1000, 0)
	s, c := quiet(t, options.Options{Now: func() time.Time { return now }})
	c.pulse.received.Store(77)
	c.session, c.timeout = 7, 10*time.Second
	c.out.Push(outbox.Pending{Xid: 1})
	d := c.Describe()
	expect.Equal(t, d.Session, 0, "before it has a session: d.Session")
	expect.Equal(t, d.Timeout, 0, "before it has a session: d.Timeout")
	expect.Equal(t, d.Queued, 1, "before it has a session: d.Queued")
	expect.Equal(t, d.BytesIn, 77, "before it has a session: d.BytesIn")
	expect.Equal(t, d.Interest, 1, "before it has a session: d.Interest")
	expect.Equal(t, d.LastCxid, -1, "before it has a session: d.LastCxid")
	expect.Equal(t, d.Received, 0, "before it has a session: d.Received")
	expect.That(t, d.Expires.IsZero(),
		"before it has a session: %+v: want d.Expires.IsZero()", d)
	expect.That(t, now.Sub(d.Established) < time.Hour,
		"since %v: want now.Sub(d.Established) < time.Hour", d.Established)
	expect.That(t, !d.Established.After(now),
		"since %v: want !d.Established.After(now)", d.Established)
	c.phase.Store(int32(phaseOpen))
	c.pulse.heard.Store(int64(s.Now()))
	c.out.Pretend(false, true, 0, 0)
	d = c.Describe()
	left := d.Expires.Sub(now)
	expect.Equal(t, d.Session, 7, "with a session: %+v, %v left: d.Session", d, left)
	expect.Equal(t, d.Timeout, 10*time.Second,
		"with a session: %+v, %v left: d.Timeout", d, left)
	expect.Equal(t, d.Interest, 0, "with a session: %+v, %v left: d.Interest", d, left)
	expect.That(t, left <= 16*time.Second &&
		left > 16*time.Second-time.Hour,
		"with a session: %+v, %v left: want left <= 16*time.Second && left > 16*time.Second-time.Hour",
		d, left)
	c.pulse.heard.Store(int64(s.Now() + time.Hour))
	expect.That(t, c.Describe().Expires.Sub(d.Expires) > 30*time.Minute, "it ends when it was heard of and a time")
	c.out.Pretend(true, true, 0, 0)
	expect.Equal(t, c.Describe().Interest, 5, "while it is written")
	c.phase.Store(int32(phaseWord))
	d = c.Describe()
	expect.Equal(t, d.Received, 1, "a word: d.Received")
	expect.Equal(t, d.Queued, 0, "a word: d.Queued")
	expect.Equal(t, d.Session, 0, "a word: d.Session")
	expect.Equal(t, d.LastCxid, -1, "a word: d.LastCxid")
}

// proposed is a replica that calls do() whenever a request is proposed for the log.
type proposed struct {
	still
	do func()
}

func (p proposed) Propose(state.Request, state.Waiter) error {
	p.do()
	return nil
}

// A client that has the answer to a write finds the write counted. The size of a write below a name with
// figures of its own is counted before the write is proposed. Another name gets figures by a write that
// succeeds, and a refused write gives it none.
func TestWriteIsCountedBeforeItsAnswer(t *testing.T) {
	s, c := quiet(t, options.Options{})
	count := func() uint64 {
		status := &report.Status{Now: time.Now()}
		status.Fill(&s.Metrics, report.NeedMetrics)
		return uint64(status.Keyed["write_per_namespace"]["first"].Count)
	}
	proposes, counted := 0, uint64(0)
	c.replica = proposed{still{state.New("test")}, func() { proposes, counted = proposes+1, count() }}
	write := func() { c.writeOp(1, jute.OpCreate, wire.Create("/first/a", nil, jute.WorldAnyone, 0)) }
	write()
	c.Done(&state.Outcome{Code: jute.NoAuth}, state.New("test"))
	expect.Equal(t, count(), 0, "writes counted after a refusal")
	write()
	expect.Equal(t, counted, 0, "writes counted when the first one is proposed")
	c.Done(&state.Outcome{Code: jute.OK}, state.New("test"))
	expect.Equal(t, count(), 1, "writes counted after the first that succeeds")
	write()
	expect.Equal(t, counted, 2, "writes counted when the next one is proposed")
	expect.Equal(t, proposes, 3, "proposed writes")
}
