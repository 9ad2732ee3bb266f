package view

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/server/view/ask"
)

// rates are the counts of connections at some moments of the last minute.
type rates struct {
	mu      sync.Mutex
	samples []sample // the oldest first
}

type sample struct {
	at             time.Time
	counts         map[int64]observe.Count // by session
	received, sent int64                   // bytes of all connections, including those that have ended
}

const (
	sampleEvery = 20 * time.Second
	sampleKept  = 4 // the oldest is a minute old
)

// sampleRates takes a sample of all connections every sampleEvery.
func (v *View) sampleRates(ctx context.Context) {
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		v.rates.mu.Lock()
		v.rates.samples = append(v.rates.samples, v.sample())
		if len(v.rates.samples) > sampleKept {
			v.rates.samples = slices.Delete(v.rates.samples, 0, 1)
		}
		v.rates.mu.Unlock()
	}
}

func (v *View) sample() sample {
	now := v.source.Status(0)
	s := sample{at: time.Now(), counts: map[int64]observe.Count{}, received: now.Received, sent: now.Sent}
	for _, c := range v.source.Conns() {
		if c.Session != 0 {
			s.counts[c.Session] = observe.Count{Requests: c.Received, Bytes: c.BytesIn + c.BytesOut}
		}
	}
	return s
}

// figure returns the value by which rows are sorted.
func figure(r *answer.Busy, by string) int64 {
	switch by {
	case "bytes":
		return r.Bytes
	case "watches":
		return int64(r.Watches)
	}
	return r.Requests
}

// maxWatchScan is how many watches are read to count them by path.
const maxWatchScan = 200_000

// top answers /top.
func (v *View) top(_ context.Context, q *ask.Query) (any, error) {
	by, limit := q.Text("by"), q.Number("limit", 20, 1, 200)
	if by != "" && by != "requests" && by != "bytes" && by != "watches" {
		q.Refuse("by=%s: want requests, bytes or watches", by)
	}
	if err := q.Wrong(); err != nil {
		return nil, err
	}
	a := answer.Top{V: ask.Version, Note: "the numbers of this server, from the counters of its connections",
		Watched: []answer.Busy{}}
	first := func(rows []answer.Busy, by string) []answer.Busy {
		slices.SortFunc(rows, func(x, y answer.Busy) int {
			return cmp.Or(cmp.Compare(figure(&y, by), figure(&x, by)), cmp.Compare(x.Name, y.Name))
		})
		return append([]answer.Busy{}, rows[:min(len(rows), limit)]...)
	}
	addrs := map[string]answer.Busy{}
	add := func(host string, r answer.Busy) {
		was := addrs[host]
		addrs[host] = answer.Busy{Name: host, Requests: was.Requests + r.Requests, Bytes: was.Bytes + r.Bytes,
			Watches: was.Watches + r.Watches}
	}
	now, then := time.Now(), v.oldest()
	for _, c := range v.source.Conns() {
		if c.Session == 0 {
			continue
		}
		was := then.counts[c.Session]
		row := answer.Busy{Requests: c.Received - was.Requests,
			Bytes: c.BytesIn + c.BytesOut - was.Bytes, Watches: v.source.WatchCount(c.Session)}
		if row.Requests < 0 || row.Bytes < 0 { // the connection is new, or its counters were reset
			row.Requests, row.Bytes = c.Received, c.BytesIn+c.BytesOut
		}
		host := c.Addr[:max(strings.LastIndexByte(c.Addr, ':'), 0)]
		add(host, row)
	}
	// Also count connections that have ended, such as the connections of clients that connect for each
	// request.
	for host, n := range v.source.GoneClients() {
		add(host, answer.Busy{Requests: n.Requests, Bytes: n.Bytes})
	}
	clients := slices.Collect(maps.Values(addrs))
	a.Seconds = round(now.Sub(then.at).Seconds())
	a.Clients = first(clients, by)
	watched, more := v.watched()
	for _, row := range first(watched, "watches") {
		if path := row.Name; v.shows(q, path) {
			row.Name = ask.Clip(path)
			a.Watched = append(a.Watched, row)
		} else {
			a.Hidden++
		}
	}
	a.Truncated = port.NoNames(a.Hidden, "watched paths are")
	if more {
		a.Truncated = "too many watches: the first " + ask.Thousands(maxWatchScan) + " were counted by path"
	}
	return a, nil
}

func round(s float64) float64 { return float64(int64(s*10)) / 10 }

// oldest() returns the oldest sample. It is a minute old, unless the server has run for a shorter time.
// Without a sample, oldest returns an empty one from the server's start, so rates count from the start of
// each connection.
func (v *View) oldest() sample {
	v.rates.mu.Lock()
	defer v.rates.mu.Unlock()
	if len(v.rates.samples) > 0 {
		return v.rates.samples[0]
	}
	return sample{at: time.Now().Add(-v.o.Now().Sub(v.began))}
}

// watched() counts the watches by path.
func (v *View) watched() (rows []answer.Busy, more bool) {
	counts := map[string]int{}
	seen := 0
	v.source.WatchScan(func(path string, _ int64) bool {
		if seen++; seen <= maxWatchScan {
			counts[path]++
		}
		return seen <= maxWatchScan
	})
	for p, n := range counts {
		rows = append(rows, answer.Busy{Name: p, Watches: n})
	}
	return rows, seen > maxWatchScan
}

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
	CanAct    bool   `json:"canAct"` // there is a super user
	Token     string `json:"token"`  // the token for actions; see tokenHeader
}

// Wrong reports whether there is anything that an operator should look at.
func (a overviewAnswer) Wrong() bool {
	return len(a.Faults)+len(a.Notices)+a.Suspected+a.Twice+a.Over > 0 ||
		slices.ContainsFunc(a.Members, memberRow.Missing)
}

// Narrow reports whether voters are missing and the loss of one more server would stop the cluster. Only the
// leader has a notice about that, but the page of every server shows it.
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

// packetRates are the packets per second of this server's clients in the last minute.
type packetRates struct {
	Seconds  float64 `json:"seconds"` // the length of time over which the rates are measured
	Received float64 `json:"received"`
	Sent     float64 `json:"sent"`
}

// packetRates returns the rates since the oldest sample. In the first second it returns nil.
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

type certificate struct {
	Name    string `json:"name"`
	Expires int64  `json:"expires"` // ms since 1970
}

type memberRow struct {
	ID     uint32 `json:"id"`
	Peer   string `json:"peer"`
	Client string `json:"client,omitempty"`
	Voter  bool   `json:"voter"`
	Leader bool   `json:"leader"`
	Self   bool   `json:"self"`
	// Reached says whether the leader hears from the member. If there is no leader, it says whether this server
	// hears from the member. nil: unknown.
	Reached *bool  `json:"reached,omitempty"`
	Lag     uint64 `json:"lag,omitempty"`   // number of entries that the member has not applied
	Waits   string `json:"waits,omitempty"` // what the member says it waits for, or why it is not reached
}

// Missing reports whether the server knows that the member cannot be reached.
func (m memberRow) Missing() bool { return m.Reached != nil && !*m.Reached }

// overview answers /overview.
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
		a.Suspected = scan.WaitGraph().CycleCount
		a.Twice, a.Over = scan.Twice, scan.Over
	}
	return a, nil
}
