package view

import (
	"context"
	"slices"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/server/view/ask"
)

// endedRest is how long tellEnded pauses between two rounds. Without the pause, programs that use a new
// session for every operation would wake it thousands of times a second.
const endedRest = 50 * time.Millisecond

// tellEnded writes a line for each session that has expired, soon after its end.
func (v *View) tellEnded(ctx context.Context) {
	for since := int64(0); ; { // `since` is the zxid of the newest end that has been handled
		select {
		case <-ctx.Done():
			return
		case <-v.source.EndedNews():
		}
		list := v.source.EndedSince(since)
		if len(list) > 0 {
			since = list[0].Zxid
		}
		for i := len(list) - 1; i >= 0; i-- {
			v.logExpired(&list[i])
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(endedRest):
		}
	}
}

// logExpired writes a log line about a session that expired. Only the leader writes it, because the leader
// decided that end.
func (v *View) logExpired(e *observe.EndedSession) {
	if e.Cause != state.EndExpired || e.Time.Before(v.began) { // skip ends that the server read from its log
		return
	}
	if mode := v.source.Status(0).Mode; mode != report.Leader && mode != report.Standalone {
		return
	}
	args := []any{"session", report.Hex(e.Session), "zxid", report.Hex(e.Zxid), "nodes", e.PathCount, "addr",
		e.Addr, "on", e.Server, "timeout", e.Timeout}
	if e.Silent > 0 { // known only if the client was connected to this server
		args = append(args, "silent", e.Silent.Round(time.Millisecond))
	}
	if e.Lost != "" {
		args = append(args, "connection", e.Lost, "before", e.LostFor.Round(time.Millisecond))
	}
	if len(e.Paths) > 0 {
		args = append(args, "paths", e.Paths)
	}
	v.o.Log.Info("session expired: nothing was heard from its client", args...)
}

type endedList struct {
	V    int    `json:"v"`
	Note string `json:"note"`
	ask.Page
	Sessions []answer.Ended `json:"sessions"`
}

var causes = map[state.EndCause]string{state.EndClosed: "closed", state.EndExpired: "expired",
	state.EndOperator: "operator"}

// listEnded answers /sessions/ended.
func (v *View) listEnded(_ context.Context, q *ask.Query) (any, error) {
	cause := q.Text("cause")
	if !slices.Contains([]string{"", "closed", "expired", "operator"}, cause) {
		q.Refuse("cause=%s: want closed, expired or operator", cause)
	}
	offset, limit := q.Part()
	if err := q.Wrong(); err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(v.source.EndedSince(-1), func(e observe.EndedSession) bool {
		return cause != "" && causes[e.Cause] != cause
	})
	list := endedList{V: ask.Version, Sessions: []answer.Ended{},
		Note: "the last 10,000 ended sessions that this server has learnt of since it started; in memory " +
			"only"}
	list.Page, all = ask.Cut(all, offset, limit)
	for i := range all {
		e := &all[i]
		row := answer.Ended{
			ID: report.Hex(e.Session), Time: e.Time.UnixMilli(), Reason: v.reason(e), Cause: causes[e.Cause],
			Addr: e.Addr, Server: e.Server,
			TimeoutMS: e.Timeout.Milliseconds(), Zxid: report.Hex(e.Zxid), Nodes: e.PathCount,
			Paths: []string{},
		}
		paths := e.Paths
		if !q.All {
			paths = e.Listed()
			row.Hidden = len(e.Paths) - len(paths)
		}
		for _, p := range paths {
			row.Paths = append(row.Paths, ask.Clip(p))
		}
		list.Sessions = append(list.Sessions, row)
	}
	return list, nil
}

// reason() says why a session ended. If it expired, reason() adds what this server did shortly before that
// may explain it: it was out of service, or it refused a connection of the client.
func (v *View) reason(e *observe.EndedSession) string {
	text := e.Reason()
	if e.Cause != state.EndExpired {
		return text
	}
	for _, d := range v.source.Downs() {
		if before := e.Time.Sub(d.Until); before >= 0 && before <= max(e.Timeout, time.Minute) {
			text += "; this server was out of service for " +
				d.Until.Sub(d.Since).Round(time.Millisecond).String() + " (election or stall), until " +
				before.Round(100*time.Millisecond).String() + " before that"
		}
	}
	if r, ok := v.source.Refused(e.Addr); ok && e.Time.Sub(r.Time) >= 0 && e.Time.Sub(r.Time) <= max(e.Timeout,
		time.Minute) {
		text += "; a connection from its address was refused " +
			e.Time.Sub(r.Time).Round(100*time.Millisecond).String() + " before: " + r.Why
	}
	return text
}

func (v *View) endedOf(session int64) *observe.EndedSession {
	list := v.source.EndedSince(-1)
	for i := range list {
		if list[i].Session == session {
			return &list[i]
		}
	}
	return nil
}
