package view

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/server/view/ask"
)

// rates are samples of the connections' counters, taken during the last minute.
type rates struct {
	mu      sync.Mutex
	samples []sample // the oldest first
}

type sample struct {
	at             time.Time
	counts         map[int64]observe.Count // by session
	received, sent int64                   // packets of all connections, also of those that have ended
}

const (
	sampleEvery = 20 * time.Second
	sampleKept  = 4 // with these, the oldest sample is about a minute old
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

// figure() returns the number of a row by which top() sorts.
func figure(r *answer.Busy, by string) int64 {
	switch by {
	case "bytes":
		return r.Bytes
	case "watches":
		return int64(r.Watches)
	}
	return r.Requests
}

// maxWatchScan bounds the watches that watched() reads to count them by path.
const maxWatchScan = 200_000

// top() answers /top.
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
		if row.Requests < 0 || row.Bytes < 0 { // the counters began again after the sample: use them as they are
			row.Requests, row.Bytes = c.Received, c.BytesIn+c.BytesOut
		}
		host := c.Addr[:max(strings.LastIndexByte(c.Addr, ':'), 0)]
		add(host, row)
	}
	// Add connections that have ended: some clients connect again for each request.
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

// oldest() returns the oldest sample, which is about a minute old. If the server has run for a shorter time
// and has no sample, it returns an empty one with the time of the server's start.
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
