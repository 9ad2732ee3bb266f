package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/history"
	"github.com/zlockd/zlockd/test/wire"
)

// Callers of tickets and sessions contend for the same locks. All their hosts' wires may be cut.
const (
	turnLocks   = 2
	turnCallers = 4 // of tickets
	turnLockers = 2 // with sessions
)

// contender takes locks again and again. What it does at each of its steps depends on the step's number alone.
type contender struct {
	c     *cluster
	rec   *observed
	name  string
	host  string
	rng   *rand.Rand // of the step
	seed  uint64
	only  func(number int) bool
	drawn int
}

// contenders runs them until stop is closed, where the servers have ports for tickets.
func (c *cluster) contenders(rec *observed, wg *sync.WaitGroup, stop <-chan struct{}) (all []*contender) {
	if !c.set.tickets {
		return nil
	}
	for k := range turnCallers + turnLockers {
		x := &contender{c: c, rec: rec, name: fmt.Sprintf("t%d", k), host: fmt.Sprintf("c%d", 6+k%2),
			seed: c.seed<<8 + 128 + uint64(k)}
		x.only = c.only.of(x.name)
		all = append(all, x)
		run := x.callForTickets
		if k >= turnCallers {
			run = x.lockBySession
		}
		wg.Go(func() { run(stop) })
	}
	return all
}

// next draws the next step that the run has. It reports false if the run is over.
func (x *contender) next(stop <-chan struct{}) bool {
	for ; ; time.Sleep(10 * time.Millisecond) {
		number := x.drawn
		if closed(stop) {
			return false
		}
		if x.drawn++; x.only == nil || x.only(number) {
			x.rng = rand.New(rand.NewPCG(x.seed, uint64(number)))
			return true
		}
	}
}

func (x *contender) upTo(d time.Duration) time.Duration { return time.Duration(x.rng.Int64N(int64(d))) }

// call is a ticket as its caller knows it.
type call struct {
	secret, lock string
	ttl          time.Duration // which stays: a caller that shortened it would break its own promise
	at           uint32        // the server that is asked as a rule
	held, given  bool
}

// callForTickets takes, renews and gives tickets. Some answers are lost, some requests come twice at once, at
// two servers, and some come when the ticket is given back or its time is over.
func (x *contender) callForTickets(stop <-chan struct{}) {
	var k call
	dial := x.c.net.Dialer(x.host)
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) }}}
	for x.next(stop) {
		if k.secret == "" {
			k = call{secret: fmt.Sprintf("secret-of-%s-ticket-%04d", x.name, x.drawn),
				lock: fmt.Sprintf("/l/%d", x.rng.IntN(turnLocks)), ttl: 4*time.Second + x.upTo(6*time.Second),
				at: 1 + uint32(x.rng.IntN(3))}
		}
		if x.rng.IntN(4) == 0 {
			k.at = 1 + uint32(x.rng.IntN(3))
		}
		ttl := k.ttl
		if over := x.ask(h, &k); over && x.rng.IntN(2) == 0 || x.rng.IntN(40) == 0 {
			k = call{} // it is over, or its caller vanishes
		}
		switch pause := x.rng.IntN(20); {
		case pause == 0:
			time.Sleep(x.upTo(2 * ttl))
		case pause < 6:
			time.Sleep(x.upTo(ttl / 2))
		case pause < 10: // another server may not know yet what this one has answered
			k.at = 1 + k.at%3
		default:
			time.Sleep(x.upTo(300 * time.Millisecond))
		}
	}
}

// ask sends one request about a ticket, or the same one to two servers. It reports whether the ticket is over.
func (x *contender) ask(h *http.Client, k *call) (over bool) {
	method, query, wait := "POST", "", time.Duration(0)
	if x.rng.IntN(2) == 0 {
		wait = x.upTo(3 * time.Second)
	}
	switch n := x.rng.IntN(12); {
	case k.held && n < 3, k.given && n < 4, n == 0:
		method, k.given = "DELETE", true
	case n == 4:
		method = "GET"
	default:
		query = fmt.Sprintf("?ttl=%dms&wait=%dms", k.ttl.Milliseconds(), wait.Milliseconds())
	}
	patience := wait + 4*time.Second
	if x.rng.IntN(8) == 0 {
		patience = x.upTo(20 * time.Millisecond)
	}
	at := []uint32{k.at}
	if x.rng.IntN(6) == 0 {
		at = append(at, 1+k.at%3)
	}
	answers := make([]*history.Turn, len(at))
	var both sync.WaitGroup
	for n, id := range at {
		both.Go(func() { answers[n] = x.send(h, k, id, method, query, patience) })
	}
	both.Wait()
	for _, a := range answers {
		k.held = k.held || a.Says == history.SaysHeld
		over = over || a.Says == history.SaysOver || a.Says == history.SaysUnknown
	}
	return over
}

// send sends one request and records what is answered.
func (x *contender) send(h *http.Client, k *call, id uint32, method, query string,
	patience time.Duration) *history.Turn {
	a := &history.Turn{Lock: k.lock, Contender: k.secret, Start: x.rec.clock(), Opens: method == "POST",
		Gives: method == "DELETE", Looks: method == "GET"}
	defer func() {
		a.End = x.rec.clock()
		x.rec.Add(history.Record{Turn: a})
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	url := "http://" + hostName(id) + ":8183/v1/locks" + k.lock + query
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		x.c.t.Error(err)
		return a
	}
	r.Host = "localhost"
	r.Header.Set("Zlock-Ticket", k.secret)
	resp, err := h.Do(r)
	if err != nil {
		return a
	}
	defer resp.Body.Close()
	var body struct {
		Token    string `json:"token"`
		Safe     int64  `json:"safeMs"`
		Position int    `json:"position"`
		Error    string `json:"error"`
		Text     string `json:"text"`
	}
	if resp.StatusCode != http.StatusNoContent && json.NewDecoder(resp.Body).Decode(&body) != nil {
		return a // the rest of it is lost
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated:
		a.Says, a.Safe = history.SaysHeld, time.Duration(body.Safe)*time.Millisecond
		a.Token, _ = strconv.ParseInt(body.Token, 10, 64)
	case http.StatusAccepted:
		a.Says, a.Ahead = history.SaysQueued, body.Position
	case http.StatusNoContent, http.StatusGone:
		a.Says = history.SaysOver
	case http.StatusNotFound:
		a.Says = history.SaysUnknown
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
	default:
		x.c.t.Errorf("K8: %s %s%s: %d %s %s", method, k.lock, query, resp.StatusCode, body.Error, body.Text)
	}
	return a
}

// lockBySession stands in the queues of the tickets as a client does, with one session after the other. It
// keeps the session of a lock that it lost sight of to itself: that ends in its time.
func (x *contender) lockBySession(stop <-chan struct{}) {
	var w *wire.Conn
	var heard time.Duration
	for x.next(stop) {
		if w == nil {
			heard = x.rec.clock()
			nc, err := x.c.dialTo(x.host, 1+uint32(x.rng.IntN(3)))
			if err != nil {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			w = wire.New(nc)
			w.Timeout = 2 * time.Second
			if w.Connect(wire.NewSession(int32(4000+x.rng.IntN(4000)))) != nil {
				w.Close()
				w = nil
				continue
			}
		}
		if x.lockOnce(w, heard, stop) != nil {
			w.Close()
			w = nil
		}
		time.Sleep(x.upTo(time.Second))
	}
	if w != nil {
		w.Close()
	}
}

// lockOnce takes one lock and gives it back. heard is when the session was asked for.
func (x *contender) lockOnce(w *wire.Conn, heard time.Duration, stop <-chan struct{}) error {
	timeout := time.Duration(w.Session.Timeout) * time.Millisecond
	dir := fmt.Sprintf("/l/%d", x.rng.IntN(turnLocks))
	id := recipe.NewID(w.Session.ID, x.rng.Uint64())
	name := recipe.Join(dir, recipe.NodeName(recipe.LayoutCurator, recipe.RoleLock, id, ""))
	path, st, err := w.Create2(jute.OpCreate2, wire.Create(name, nil, jute.WorldAnyone,
		jute.FlagEphemeralSequential))
	if err != nil {
		for _, above := range []string{"/l", dir} { // which may be there, or go again
			if _, err := w.Call(jute.OpCreateContainer, wire.Create(above, nil, jute.WorldAnyone,
				jute.FlagContainer)); err != nil {
				return err
			}
		}
		return w.Ping()
	}
	own, _, _ := recipe.ParseName(recipe.Base(path))
	told := func(says history.Say, start time.Duration, ahead int) {
		x.rec.Add(history.Record{Turn: &history.Turn{Lock: dir, Contender: path, Start: start, Says: says,
			End: x.rec.clock(), Token: st.Czxid, Ahead: ahead, Safe: heard + timeout - start}})
	}
	for renewals, held := x.rng.IntN(5), false; renewals > 0 || !held; {
		if closed(stop) {
			return nil // the session ends in its time
		}
		start := x.rec.clock()
		names, _, err := w.Children(dir, false)
		if err != nil {
			return err
		}
		place, err := (recipe.Rule{Layout: recipe.LayoutCurator, Kind: recipe.RoleLock}).Place(
			slices.Values(names), own)
		if err != nil || !place.Found {
			x.c.t.Errorf("K9: %s is not among %v: %v", path, names, err)
			return net.ErrClosed
		}
		if held = !place.Blocked; held {
			renewals--
			told(history.SaysHeld, start, 0)
		} else {
			told(history.SaysQueued, start, place.Ahead)
		}
		time.Sleep(x.upTo(timeout / 4))
		sent := x.rec.clock()
		if err := w.Sync(dir); err != nil { // which the leader hears
			return err
		}
		heard = sent
	}
	x.rec.Add(history.Record{Turn: &history.Turn{Lock: dir, Contender: path, Start: x.rec.clock(),
		End: x.rec.clock(), Gives: true}})
	return w.Delete(path, -1)
}
