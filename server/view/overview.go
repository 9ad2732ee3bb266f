package view

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/ask"
)

// overviewAnswer is the state of the server and its cluster.
type overviewAnswer struct {
	V        int         `json:"v"`
	Version  string      `json:"version"`
	ID       uint32      `json:"id"`
	Mode     string      `json:"mode"`
	Serving  bool        `json:"serving"`
	Reason   string      `json:"reason,omitempty"`
	Faults   []string    `json:"faults"`
	Notices  []string    `json:"notices"`
	Leader   uint32      `json:"leader"`
	Term     uint64      `json:"term"`
	Zxid     string      `json:"zxid"`
	Started  int64       `json:"started"` // ms since 1970
	Members  []memberRow `json:"members"`
	Nodes    int         `json:"nodes"`
	DataSize int64       `json:"dataBytes"`
	Sessions int         `json:"sessions"`
	Conns    int         `json:"connections"`
	Watches  int         `json:"watches"`

	Ephemerals   int           `json:"ephemerals"`
	Received     int64         `json:"received"`
	Sent         int64         `json:"sent"`
	Rates        *packetRates  `json:"rates,omitempty"` // nil in the first second
	Outstanding  int           `json:"outstanding"`
	LatencyMaxMS int64         `json:"latencyMaxMs"`
	LatencyAvgMS float64       `json:"latencyAvgMs"`
	DataDir      string        `json:"dataDir,omitempty"`
	DiskFree     int64         `json:"diskFreeBytes,omitempty"`
	SnapshotZxid string        `json:"snapshotZxid,omitempty"`
	Certificates []certificate `json:"certificates"`

	Locks     int    `json:"locks"`
	Held      int    `json:"locksHeld"`
	Waiters   int    `json:"waiters"`
	Suspected int    `json:"suspectedDeadlocks"`
	Twice     int    `json:"locksHeldTwice,omitempty"`
	Over      int    `json:"holdsOverLimit,omitempty"`
	CanAct    bool   `json:"canAct"` // whether there is a super user
	Token     string `json:"token"`  // the token for actions; see tokenHeader
}

// Wrong reports whether there is anything that an operator should look at.
func (a overviewAnswer) Wrong() bool {
	return len(a.Faults)+len(a.Notices)+a.Suspected+a.Twice+a.Over > 0 ||
		slices.ContainsFunc(a.Members, memberRow.Missing)
}

// Narrow reports whether voters are missing, so that the loss of one more would stop the cluster. A notice
// says the same, but only at the leader. The page says it at every server.
func (a overviewAnswer) Narrow() bool {
	voters, missing := 0, 0
	for _, m := range a.Members {
		if m.Voter {
			voters++
			if m.Missing() {
				missing++
			}
		}
	}
	return missing > 0 && voters-missing <= voters/2+1
}

type memberRow struct {
	ID     uint32 `json:"id"`
	Peer   string `json:"peer"`
	Client string `json:"client,omitempty"`
	Voter  bool   `json:"voter"`
	Leader bool   `json:"leader"`
	Self   bool   `json:"self"`
	// Reached says whether the leader hears from the member, or, without a leader, whether this server does. It
	// is nil if that is unknown.
	Reached *bool  `json:"reached,omitempty"`
	Lag     uint64 `json:"lag,omitempty"`   // number of entries that the member has not applied
	Waits   string `json:"waits,omitempty"` // what the member waits for, or why it cannot be asked
}

// Missing reports whether the server knows that the member cannot be reached.
func (m memberRow) Missing() bool { return m.Reached != nil && !*m.Reached }

type certificate struct {
	Name    string `json:"name"`
	Expires int64  `json:"expires"` // ms since 1970
}

// overview() answers /overview.
func (v *View) overview(ctx context.Context, q *ask.Query) (any, error) {
	if err := q.Wrong(); err != nil {
		return nil, err
	}
	s := v.source.Status(0)
	a := overviewAnswer{
		V: ask.Version, Version: s.Version, ID: s.ID, Mode: string(s.Mode), Serving: s.Serving, Reason: s.Reason,
		Faults: append([]string{}, s.Faults...), Notices: append([]string{}, s.Notices...),
		Leader: s.Leader, Term: s.Term, Zxid: report.Hex(s.Zxid), Started: v.began.UnixMilli(),
		Members: []memberRow{},
		Nodes:   s.Nodes, DataSize: s.DataSize,
		Sessions: s.Sessions, Conns: s.Conns, Watches: s.AllWatches, Ephemerals: s.EphemeralCount,
		Received: s.Received, Sent: s.Sent,
		Outstanding: s.Outstanding, LatencyMaxMS: s.Latency.Max, LatencyAvgMS: s.Latency.Avg,
		DataDir: s.Config.DataDir, DiskFree: s.DiskFree, Rates: v.packetRates(s),
		SnapshotZxid: report.Hex(s.Snapshot.Zxid), CanAct: v.actor.Ready(), Token: v.actor.Token(),
		Certificates: []certificate{},
	}
	for _, c := range s.Certificates {
		a.Certificates = append(a.Certificates, certificate{c.Use, c.Expires.UnixMilli()})
	}
	var far map[uint32]status.Member
	if len(s.Members) > 0 {
		far = v.members(ctx)
	}
	for _, m := range s.Members {
		row := memberRow{ID: m.ID, Peer: m.Peer, Client: m.Client, Voter: m.Voter, Leader: m.ID == s.Leader,
			Self: m.ID == s.ID}
		if p, ok := far[m.ID]; ok {
			reached := p.Reached()
			row.Reached, row.Waits = &reached, ask.Clip(p.Waits)
			if reached {
				row.Lag = p.Lag
			}
		}
		a.Members = append(a.Members, row)
	}
	if scan, err := v.look.Locks(ctx); err == nil {
		for i := range scan.Locks {
			q := &scan.Locks[i]
			if len(q.Holders)+len(q.Waiters) > 0 {
				a.Locks++
			}
			if len(q.Holders) > 0 {
				a.Held++
			}
			a.Waiters += waiting(q)
		}
		a.Suspected = scan.Suspected()
		a.Twice, a.Over = scan.Twice, scan.Over
	}
	return a, nil
}

// packetRates says how many packets a second this server and its clients have exchanged, on average over
// `Seconds`, which is about a minute.
type packetRates struct {
	Seconds  float64 `json:"seconds"` // the length of time over which the rates are measured
	Received float64 `json:"received"`
	Sent     float64 `json:"sent"`
}

// packetRates returns the rates since the oldest sample. It returns nil if that is less than a second old.
func (v *View) packetRates(s *report.Status) *packetRates {
	then := v.oldest()
	over := time.Since(then.at).Seconds()
	if over < 1 {
		return nil
	}
	rate := func(was, now int64) float64 {
		if now < was { // an operator has reset the numbers
			was = 0
		}
		return round(float64(now-was) / over)
	}
	return &packetRates{round(over), rate(then.received, s.Received), rate(then.sent, s.Sent)}
}

// reach keeps what the other servers last answered about the members' progress. Many requests share one round
// of questions, and none waits longer than reachWait for it.
type reach struct {
	mu    sync.Mutex
	all   map[uint32]status.Member
	at    time.Time     // when `all` was replaced
	asked chan struct{} // while a round of questions is under way: closed at its end; otherwise nil
}

const (
	reachRest  = time.Second            // time between two questions
	reachStale = 4 * time.Second        // an answer older than this is not used
	reachWait  = 500 * time.Millisecond // how long the answer to a question may take
)

// members() returns the progress of the members, at most reachStale old. It returns nil if the other servers
// do not answer soon.
func (v *View) members(ctx context.Context) map[uint32]status.Member {
	r := &v.reach
	r.mu.Lock()
	if r.asked == nil && time.Since(r.at) >= reachRest && v.ctx.Err() == nil {
		r.asked = make(chan struct{})
		v.wg.Go(v.askMembers)
	}
	all, at, asked := r.all, r.at, r.asked
	r.mu.Unlock()
	if time.Since(at) < reachStale {
		return all
	}
	select {
	case <-asked:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.all
	case <-time.After(reachWait):
	case <-ctx.Done():
	}
	return nil
}

func (v *View) askMembers() {
	r := &v.reach
	list, _ := v.source.Members(v.ctx) // ignore the error: without a leader, there is still a list
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.asked)
	r.all, r.at, r.asked = list.Members, time.Now(), nil
}
