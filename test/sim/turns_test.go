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
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/history"
	"github.com/zlockd/zlockd/test/wire"
)

// Callers of tickets and clients with sessions contend for the same locks. Tickets also contend for a lock of
// readers and writers and for the permits of a semaphore, and callers draw from rates. The test may cut all
// their hosts' wires.
const (
	turnLocks   = 2
	turnPermits = 3
	turnCallers = 6 // contenders that ask for tickets
	turnLockers = 2 // contenders with sessions
	turnDrawers = 2
)

// contender takes locks again and again. Each step depends only on the number of the step.
type contender struct {
	c     *cluster
	rec   *observed
	name  string
	host  string
	rng   *rand.Rand // random numbers of the present step
	seed  uint64
	only  func(number int) bool
	drawn int
	rests func() time.Duration // returns how long to rest before the next step; nil: no rests
}

// contenders() runs contenders until `stop` is closed, if the servers have ports for tickets.
func (c *cluster) contenders(rec *observed, wg *sync.WaitGroup, stop <-chan struct{}) (all []*contender) {
	if !c.set.tickets {
		return nil
	}
	for k := range turnCallers + turnLockers + turnDrawers {
		x := &contender{c: c, rec: rec, name: fmt.Sprintf("t%d", k), host: fmt.Sprintf("c%d", 6+k%2),
			seed: c.seed<<8 + 128 + uint64(k)}
		x.only = c.only.of(x.name)
		if c.day != nil {
			x.rests = c.day.rests(rand.New(rand.NewPCG(x.seed, 1<<32)))
		}
		all = append(all, x)
		run := x.callForTickets
		if k >= turnCallers {
			run = x.lockBySession
		}
		if k >= turnCallers+turnLockers {
			run = x.drawFromRates
		}
		wg.Go(func() { run(stop) })
	}
	return all
}

// next() moves to the next step that the run makes. It reports false if the run is over.
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

// rested() lets the contender rest, and reports whether the rest took minutes. If so, the contender has lost
// its holds.
func (x *contender) rested(stop <-chan struct{}) bool {
	if x.rests == nil {
		return false
	}
	d := x.rests()
	select {
	case <-stop:
	case <-time.After(d):
	}
	return d > time.Minute
}

func (x *contender) upTo(d time.Duration) time.Duration { return time.Duration(x.rng.Int64N(int64(d))) }

// call is what a caller knows about its ticket.
type call struct {
	secret, lock string
	mode         string        // parameter of the query, such as "mode=exclusive"
	shares       bool          // the caller shares its lock with others
	permits      int           // permits of a semaphore; 0: the caller wants a lock
	ttl          time.Duration // never changes: else a hold could end before the time that an answer promised
	at           uint32        // the server that the caller usually asks
	held, given  bool
}

// callForTickets takes, renews and gives back tickets. Some answers are lost. Some requests are sent to two
// servers at once, and some arrive when the ticket is given back or has ended.
func (x *contender) callForTickets(stop <-chan struct{}) {
	var k call
	h := x.http()
	for x.next(stop) {
		if x.rested(stop) && k.secret != "" { // after so long the ticket has ended, and may be forgotten
			x.send(h, &k, k.at, "GET", "", 4*time.Second)
			k = call{}
		}
		if k.secret == "" {
			k = x.newCall()
		}
		if x.rng.IntN(4) == 0 {
			k.at = 1 + uint32(x.rng.IntN(3))
		}
		ttl := k.ttl
		if over := x.ask(h, &k); over && x.rng.IntN(2) == 0 || x.rng.IntN(40) == 0 {
			k = call{} // the ticket has ended, or its caller vanishes
		}
		switch pause := x.rng.IntN(20); {
		case pause == 0:
			time.Sleep(x.upTo(2 * ttl))
		case pause < 6:
			time.Sleep(x.upTo(ttl / 2))
		case pause < 10: // ask another server at once: it may not know yet what this one has answered
			k.at = 1 + k.at%3
		default:
			time.Sleep(x.upTo(300 * time.Millisecond))
		}
	}
}

// http() returns an HTTP client that sends each request on a new connection.
func (x *contender) http() *http.Client {
	dial := x.c.net.Dialer(x.host)
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) }}}
}

// newCall returns a random ticket to ask for.
func (x *contender) newCall() call {
	k := call{secret: fmt.Sprintf("secret-of-%s-ticket-%04d", x.name, x.drawn), mode: "mode=exclusive",
		ttl: 4*time.Second + x.upTo(6*time.Second), at: 1 + uint32(x.rng.IntN(3))}
	switch n := x.rng.IntN(4); {
	case n < turnLocks:
		k.lock = fmt.Sprintf("/l/%d", n)
	case n == 2:
		k.lock = "/l/rw"
		if k.shares = x.rng.IntN(3) > 0; k.shares {
			k.mode = "mode=shared"
		}
	default:
		k.lock, k.permits = "/l/permits", 1+x.rng.IntN(2)
		k.mode = fmt.Sprintf("mode=permit&limit=%d&permits=%d", turnPermits, k.permits)
	}
	return k
}

// ask() sends one request about a ticket to one server or to two servers. It reports whether the ticket has
// ended.
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
		query = fmt.Sprintf("?ttl=%dms&wait=%dms&%s", k.ttl.Milliseconds(), wait.Milliseconds(), k.mode)
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

// send() sends one request and records the answer.
func (x *contender) send(h *http.Client, k *call, id uint32, method, query string,
	patience time.Duration) *history.Turn {
	a := &history.Turn{Lock: k.lock, Contender: k.secret, Start: x.rec.clock(), Opens: method == "POST",
		Gives: method == "DELETE", Looks: method == "GET", Shares: k.shares, Permits: k.permits}
	defer func() {
		a.End = x.rec.clock()
		x.rec.Add(history.Record{Turn: a})
	}()
	code, body := x.request(h, id, method, "/v1/locks"+k.lock+query, k.secret, patience)
	switch code {
	case http.StatusOK, http.StatusCreated:
		if slices.ContainsFunc(body.Slots, func(slot int) bool { return slot < 1 || slot > turnPermits }) {
			x.c.t.Errorf("K9: %s has the numbers %v of %d", k.secret, body.Slots, turnPermits)
		}
		a.Slots = body.Slots
		a.Says, a.Safe = history.SaysHeld, time.Duration(body.Safe)*time.Millisecond
		a.Token, _ = strconv.ParseInt(body.Token, 10, 64)
	case http.StatusAccepted:
		a.Says, a.Ahead = history.SaysQueued, body.Position
	case http.StatusNoContent, http.StatusGone:
		a.Says = history.SaysOver
	case http.StatusNotFound:
		a.Says = history.SaysUnknown
	case 0, http.StatusServiceUnavailable, http.StatusTooManyRequests:
	default:
		x.c.t.Errorf("K8: %s %s%s: %d %s %s", method, k.lock, query, code, body.Error, body.Text)
	}
	return a
}

// ticketAnswer is an answer of a port for tickets.
type ticketAnswer struct {
	Token    string `json:"token"`
	Safe     int64  `json:"safeMs"`
	Slots    []int  `json:"slots"`
	Position int    `json:"position"`
	Drawn    bool   `json:"drawn"`
	Repeated bool   `json:"repeated"`
	At       int64  `json:"at"`
	Error    string `json:"error"`
	Text     string `json:"text"`
}

// request() sends one request. A code of 0 means that no complete answer came.
func (x *contender) request(h *http.Client, id uint32, method, path, secret string, patience time.Duration) (
	code int, body ticketAnswer) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+hostName(id)+":8183"+path, nil)
	if err != nil {
		x.c.t.Error(err)
		return 0, body
	}
	r.Host = "localhost"
	if secret != "" {
		r.Header.Set("Zlock-Ticket", secret)
	}
	resp, err := h.Do(r)
	if err != nil {
		return 0, body
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent && json.NewDecoder(resp.Body).Decode(&body) != nil {
		return 0, body
	}
	return resp.StatusCode, body
}

// drawFromRates draws from rates at any server. It repeats draws that have a secret, some at two servers at
// once, and loses some answers.
func (x *contender) drawFromRates(stop <-chan struct{}) {
	h := x.http()
	for x.next(stop) {
		x.rested(stop)
		d := history.Draw{Rate: "/r/few", Limit: 3, Per: 2 * time.Second}
		if x.rng.IntN(2) == 0 {
			d = history.Draw{Rate: "/r/more", Limit: 20, Per: 10 * time.Second}
		}
		wait, times := time.Duration(0), 1
		if x.rng.IntN(2) == 0 {
			d.Secret, times = fmt.Sprintf("secret-of-%s-draw-%06d", x.name, x.drawn), 1+x.rng.IntN(4)
		}
		if x.rng.IntN(3) == 0 {
			wait = x.upTo(3 * time.Second)
		}
		path := fmt.Sprintf("/v1/rates%s?limit=%d&per=%v&wait=%dms", d.Rate, d.Limit, d.Per,
			wait.Milliseconds())
		patience := wait + 4*time.Second
		if x.rng.IntN(6) == 0 {
			patience = x.upTo(20 * time.Millisecond)
		}
		pause, at := x.upTo(300*time.Millisecond), x.rng.IntN(3)
		var all sync.WaitGroup
		for n := range times {
			all.Go(func() { x.drawOnce(h, d, uint32(1+(at+n)%3), path, patience) })
			if n%2 == 1 {
				all.Wait()
			}
		}
		all.Wait()
		time.Sleep(pause)
	}
}

// drawOnce sends one request for a draw and records the answer.
func (x *contender) drawOnce(h *http.Client, d history.Draw, id uint32, path string, patience time.Duration) {
	d.Start = x.rec.clock()
	code, body := x.request(h, id, "POST", path, d.Secret, patience)
	switch {
	case code == http.StatusOK && body.Drawn:
		d.OK, d.Told, d.At = true, body.Repeated, time.Duration(body.At)*time.Millisecond
		d.End = x.rec.clock()
		x.rec.Add(history.Record{Draw: &d})
	case code != 0 && code != http.StatusServiceUnavailable && code != http.StatusTooManyRequests:
		x.c.t.Errorf("K12: %s: %d %s %s", path, code, body.Error, body.Text)
	}
}

// lockBySession joins the queues of the tickets as a client with sessions does, with one session after the
// other. If it loses its connection while it may hold a lock, it does not resume the session, so the session
// ends by timeout.
func (x *contender) lockBySession(stop <-chan struct{}) {
	var w *wire.Conn
	var heard time.Duration
	for x.next(stop) {
		if x.rested(stop) && w != nil {
			w.Close()
			w = nil
		}
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

// lockOnce takes one lock and gives it back. `heard` is the time at which the client asked for the session.
func (x *contender) lockOnce(w *wire.Conn, heard time.Duration, stop <-chan struct{}) error {
	timeout := time.Duration(w.Session.Timeout) * time.Millisecond
	dir := fmt.Sprintf("/l/%d", x.rng.IntN(turnLocks))
	id := recipe.NewID(w.Session.ID, x.rng.Uint64())
	name := recipe.Join(dir, recipe.NodeName(recipe.LayoutCurator, recipe.RoleLock, id, ""))
	path, st, err := w.Create2(jute.OpCreate2, wire.Create(name, nil, jute.WorldAnyone,
		jute.FlagEphemeralSequential))
	if err != nil {
		for _, above := range []string{"/l", dir} { // each may be there already, or be removed at any time
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
			return nil // the session ends by timeout
		}
		start := x.rec.clock()
		names, _, err := w.Children(dir, false)
		if err != nil {
			return err
		}
		place, err := (turns.Rule{Layout: recipe.LayoutCurator, Kind: recipe.RoleLock}).Place(
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
		if err := w.Sync(dir); err != nil { // the leader hears of the sync, so the session lives on
			return err
		}
		heard = sent
	}
	x.rec.Add(history.Record{Turn: &history.Turn{Lock: dir, Contender: path, Start: x.rec.clock(),
		End: x.rec.clock(), Gives: true}})
	return w.Delete(path, -1)
}
