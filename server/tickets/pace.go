package tickets

import (
	"context"
	"maps"
	"net/http"
	"time"
)

// Prices of requests, and bounds on floods of requests. Each answer costs processor time, even a refusal.
const (
	perOpen     = 4   // requests an identity may send for each ticket that it may open
	perRequest  = 100 // reading this many nodes counts as one more request
	perNodes    = 10  // making this many nodes counts as one more ticket or rate
	longestPace = time.Second
	spareWork   = 50 // requests of an identity at a time, not counting its waits
	failures    = 20 // how many wrong tokens an address may send in a second
)

// The type paces has a time for each key. Each event of a key moves the key's time on by one interval: a
// second, divided by the number of events that the key may have in a second. An event that would move it
// beyond the present must wait.
type paces map[string]time.Time

// next() counts n events of a key. A key may have up to `most` events in a second, and as many at once. The
// result is how long the first of these events must wait. If this wait is longer than `longest`, no event is
// counted.
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

// begin() waits until a request of an identity may begin, or refuses the request. So a flood of one identity
// does not slow others. Each request that has begun must end with finish().
func (s *Server) begin(ctx context.Context, i *Identity) *Answer {
	s.mu.Lock()
	if s.working[i.Name] >= i.Waits+spareWork {
		s.mu.Unlock()
		pause(ctx, failedLogin) // the pause slows a connection that sends many requests at once
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
