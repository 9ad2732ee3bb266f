package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
)

// ticketHold is what a caller knows about its hold of the lock.
type ticketHold struct {
	token int64
	safe  time.Time // the caller surely holds the lock until then
}

// ticketJudge checks all holds of one lock.
type ticketJudge struct {
	mu     sync.Mutex
	holds  map[int]ticketHold // by caller
	last   int64
	grants int
	wrong  []string
}

// told() records an answer in which a server promised the lock to a caller until the time `safe`.
func (j *ticketJudge) told(caller int, token int64, safe time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	for other, h := range j.holds {
		if other != caller && now.Before(h.safe) && now.Before(safe) {
			j.wrong = append(j.wrong, fmt.Sprintf("caller %d holds by token %d, and %d by %d for %v more",
				caller, token, other, h.token, h.safe.Sub(now)))
		}
	}
	if h, known := j.holds[caller]; !known || h.token != token {
		if now.Before(safe) && token <= j.last {
			j.wrong = append(j.wrong, fmt.Sprintf("token %d after %d", token, j.last))
		}
		j.last = max(j.last, token)
		j.grants++
	}
	j.holds[caller] = ticketHold{token, safe}
}

func (j *ticketJudge) gives(caller int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.holds, caller)
}

// In TestTicketsOverFaultsK9, callers of tickets pass a lock on in virtual time, at any server, while leaders
// are cut off. Some callers vanish while they hold the lock or wait. No caller gets the lock during the time
// that a server promised to another caller, tokens rise, and the lock keeps being passed on.
func TestTicketsOverFaultsK9(t *testing.T) {
	set := settings{heartbeat: time.Second, latency: time.Millisecond, snapshot: 1 << 30, trailing: 10_240,
		tickets: true}
	quietWith(t, set, func(t *testing.T, c *cluster) {
		j := &ticketJudge{holds: map[int]ticketHold{}}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for k := range 6 {
			wg.Go(func() { c.callsForTickets(k, j, stop) })
		}
		f := newFaults(c)
		for n := range 30 {
			time.Sleep(9 * time.Second)
			f.away(f.leaderOr(1), time.Duration(1+n%4)*time.Second)
		}
		f.wg.Wait()
		time.Sleep(10 * time.Second)
		close(stop)
		wg.Wait()
		t.Logf("%d grants", j.grants)
		for _, w := range j.wrong {
			t.Error(w)
		}
		expect.That(t, j.grants > 60, "only %d grants", j.grants)
	})
}

// callsForTickets takes, renews and gives back tickets until it is stopped.
func (c *cluster) callsForTickets(k int, j *ticketJudge, stop <-chan struct{}) {
	rng := rand.New(rand.NewPCG(11, uint64(k)))
	dial := c.net.Dialer(fmt.Sprintf("c%d", k))
	h := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) }}}
	ask := func(method, secret, query string) (code int, token int64, safe time.Time) {
		at := "http://" + hostName(uint32(1+rng.IntN(3))) + ":8183/v1/locks/sim?" + query
		r, err := http.NewRequest(method, at, nil)
		if err != nil {
			return 0, 0, safe
		}
		r.Host = "localhost"
		r.Header.Set("Zlock-Ticket", secret)
		sent := time.Now()
		a, err := h.Do(r)
		if err != nil {
			return 0, 0, safe
		}
		defer a.Body.Close()
		var body struct {
			Token string `json:"token"`
			Safe  int64  `json:"safeMs"`
		}
		if json.NewDecoder(a.Body).Decode(&body) == nil {
			token, _ = strconv.ParseInt(body.Token, 10, 64)
		}
		return a.StatusCode, token, sent.Add(time.Duration(body.Safe) * time.Millisecond)
	}
	for n := 0; ; n++ {
		secret := fmt.Sprintf("secret-of-caller-%d-ticket-%d", k, n)
		vanishes := rng.IntN(6) == 0
	ticket:
		for {
			select {
			case <-stop:
				return
			default:
			}
			code, token, safe := ask("POST", secret, "ttl=4s&wait=2s")
			switch {
			case code == 404 || code == 410:
				break ticket
			case token == 0:
				if code != 202 {
					time.Sleep(100 * time.Millisecond)
				} else if vanishes && rng.IntN(4) == 0 {
					break ticket
				}
				continue
			}
			j.told(k, token, safe)
			time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
			if rng.IntN(3) == 0 {
				continue // the caller renews its ticket
			}
			if vanishes { // the caller's hold ends by timeout
				time.Sleep(time.Until(safe))
				break ticket
			}
			j.gives(k)
			for code = 0; code != 204 && code != 404 && code != 410; {
				if code, _, _ = ask("DELETE", secret, ""); code == 0 {
					time.Sleep(100 * time.Millisecond)
				}
			}
			break ticket
		}
	}
}
