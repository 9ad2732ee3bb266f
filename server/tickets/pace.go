package tickets

import (
	"context"
	"maps"
	"net/http"
	"time"
)

// What requests count, and bounds on them. They are counted because even a refusal costs processor time.
const (
	perOpen     = 4   // an identity that may open n tickets in a second may send perOpen*n requests
	perRequest  = 100 // an answer counts as one more request for each perRequest nodes that it reads
	perNodes    = 10  // a new ticket or rate counts as one more for each perNodes nodes that it makes
	longestPace = time.Second
	spareWork   = 50 // requests of an identity that the server handles at a time, besides its waits
	failures    = 20 // how many wrong tokens an address may send in a second
)

// paces limits how often something happens. It has a time for each key. Each event of the key moves that time
// forward by an interval: a second, divided by the number of events that are allowed in a second. An event
// that would move it beyond the present must wait.
type paces map[string]time.Time

// next() counts n events of a key. A key may have up to `most` events in a second, or all of these at once.
// The result is how long the caller must wait before the first event. If that is longer than `longest`,
// next() counts nothing.
func (p paces) next(key string, most, n int, now time.Time, longest time.Duration) time.Duration {
	if most <= 0 {
		return longest + 1
	}
	due, known := p[key]
	if !known && len(p) >= MaxTickets {
		maps.DeleteFunc(p, func(_ string, due time.Time) bool { return due.Before(now) })
		if len(p) >= MaxTickets {
			clear(p)
		}
	}
	if full := now.Add(-time.Second); due.Before(full) {
		due = full
	}
	each := time.Second / time.Duration(most)
	wait := max(due.Add(each).Sub(now), 0)
	if wait <= longest {
		p[key] = due.Add(time.Duration(n) * each)
	}
	return wait
}

// opens() counts a new ticket or rate of an identity, or refuses it. `nodes` is how many nodes the ticket or
// rate makes.
func (s *Server) opens(i *Identity, nodes int) *Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened.next(i.Name, i.Rate, 1+nodes/perNodes, time.Now(), 0) == 0 {
		return nil
	}
	return fail(http.StatusTooManyRequests, "limit", "this identity opens more than %d tickets and rates a "+
		"second; a ticket or rate that makes many directories counts as several", i.Rate)
}

// begin() waits until a request of an identity may begin, or refuses the request. It keeps a flood of
// requests of one identity from slowing others. Each request that has begun must end with finish().
func (s *Server) begin(ctx context.Context, i *Identity) *Answer {
	s.mu.Lock()
	if s.working[i.Name] >= i.Waits+spareWork {
		s.mu.Unlock()
		pause(ctx, failedLogin) // slow down a client that sends one request after another
		return fail(http.StatusTooManyRequests, "limit", "this identity has %d requests under way at this "+
			"server, and no more are allowed", i.Waits+spareWork)
	}
	s.working[i.Name]++
	wait := s.asked.next(i.Name, perOpen*i.Rate, 1, time.Now(), longestPace)
	s.mu.Unlock()
	pause(ctx, min(wait, longestPace))
	if wait <= longestPace {
		return nil
	}
	s.finish(i, 0)
	return fail(http.StatusTooManyRequests, "limit", "this identity sends more than %d requests a second",
		perOpen*i.Rate)
}

// finish() ends a request. `seen` is how many nodes were read for its answer.
func (s *Server) finish(i *Identity, seen int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.working[i.Name]--; s.working[i.Name] == 0 {
		delete(s.working, i.Name)
	}
	if n := seen / perRequest; n > 0 {
		s.asked.next(i.Name, perOpen*i.Rate, n, time.Now(), time.Hour)
	}
}

// failed() delays the answer to a caller with a wrong token. The more wrong tokens an address sends, the
// longer the delay.
func (s *Server) failed(ctx context.Context, host string) {
	s.mu.Lock()
	wait := s.asked.next("failed from "+host, failures, 1, time.Now(), longestPace)
	s.mu.Unlock()
	pause(ctx, failedLogin+min(wait, longestPace))
}

// failedLogin is how long the server delays the answer to a wrong token.
const failedLogin = 100 * time.Millisecond

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
