package tickets_test

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/server/tickets"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The clock of a server is behind the leader's. The server refuses a draw for no longer than the time of the
// rate. These draws have no secret, so it may refuse them without a log entry.
func TestDrawAtAServerWhoseClockIsBehind(t *testing.T) {
	t.Parallel()
	var behind [3]atomic.Bool
	c := startThree(t, func(n int, o *server.Options) {
		o.Now = func() time.Time {
			if behind[n].Load() {
				return time.Now().Add(-time.Hour)
			}
			return time.Now()
		}
	})
	at := 0
	for c.list[at].Node().Status().Role == "leader" {
		at++
	}
	behind[at].Store(true)
	late := caller{t, c.addr(at)}
	const draw = "POST /v1/rates/r?limit=1&per=1s"
	caller{t, c.addr(at + 1)}.expect(0, 200, draw)
	must.Await(t, "a draw is refused for longer than a second", time.Minute, func() bool {
		return late.ask(0, draw).code == 200
	})
}

// The clock of a server is ahead of the leader's. The server takes a draw for free, but the leader refuses
// it. A caller that waits at this server asks again only when the leader's answer says so.
func TestDrawAtAServerWhoseClockIsAhead(t *testing.T) {
	t.Parallel()
	var ahead [3]atomic.Bool
	c := startThree(t, func(n int, o *server.Options) {
		o.Now = func() time.Time {
			if ahead[n].Load() {
				return time.Now().Add(time.Hour)
			}
			return time.Now()
		}
	})
	at := 0
	for c.list[at].Node().Status().Role == "leader" {
		at++
	}
	ahead[at].Store(true)
	const draw = "POST /v1/rates/r?limit=1&per=3s"
	caller{t, c.addr(at + 1)}.expect(0, 200, draw)
	before := c.list[at].Node().Status().Applied
	caller{t, c.addr(at)}.expect(0, 200, draw+"&wait=1m")
	entries := c.list[at].Node().Status().Applied - before
	expect.That(t, entries < 50, "%d log entries while one caller waited for a draw, want less than 50", entries)
}

// A caller draws. At the limit, its request waits, or is refused by an answer that says when the next draw is
// free. A repeated request with the same secret draws only once.
func TestDrawsOverHTTP(t *testing.T) {
	t.Parallel()
	i := start(t, nil)
	c := caller{t, i.TicketAddr()}
	a := c.expect(1, 200, "POST /v1/rates/api/calls?limit=2&per=3s")
	expect.That(t, a.Drawn, "drawn: %s", a.body)
	expect.Equal(t, a.Left, 1, "drawn: left")
	expect.That(t, !a.Repeated, "drawn: %s", a.body)
	expect.That(t, a.At > 0, "drawn: %s", a.body)
	again := c.expect(1, 200, "POST /v1/rates/api/calls?limit=2&per=3s")
	expect.That(t, again.Drawn, "again: %s", again.body)
	expect.That(t, again.Repeated, "again: %s", again.body)
	expect.Equal(t, again.At, a.At, "again")
	expect.Equal(t, again.Left, 1, "again: left")
	b := c.expect(0, 200, "POST /v1/rates/api/calls?limit=2&per=3s") // without a secret
	expect.That(t, b.Drawn, "drawn: %s", b.body)
	expect.Equal(t, b.Left, 0, "drawn: left")
	for n := range 2 { // with and without a secret
		no := c.expect(2*n, 429, "POST /v1/rates/api/calls?limit=2&per=3s")
		expect.Equal(t, no.Error, "rate", "refused: error")
		expect.That(t, no.Retry > 0, "refused: %s", no.body)
		expect.That(t, no.Retry <= 3000, "refused: %s", no.body)
		expect.That(t, no.head.Get("Retry-After") >= "1" && no.head.Get("Retry-After") <= "3", "%v", no.head)
	}
	waited := c.expect(3, 200, "POST /v1/rates/api/calls?limit=2&per=3s&wait=1m")
	expect.That(t, waited.At >= a.At+3000, "a draw that waited, of %d, after one of %d", waited.At, a.At)
	expect.Equal(t, c.expect(4, 429, "POST /v1/rates/api/calls?limit=1&per=3s&wait=10ms").Error, "rate")
	_, refused := i.TicketDraws()
	expect.Equal(t, refused, 3, "refused draws that are counted")
	expect.Equal(t, c.expect(5, 409, "POST /v1/rates/api/calls?limit=2&per=4s").Error, "limit", "a longer time")
	must.Get(client(t, i).Create("/words", []byte("words"), 0))(t)
	expect.Equal(t, c.expect(5, 409, "POST /v1/rates/words?limit=2&per=4s").Error, "path")
	for what, code := range map[string]int{"POST /v1/rates/a": 400, "POST /v1/rates/a?limit=1": 400,
		"POST /v1/rates/a?per=1s": 400, "POST /v1/rates/a?limit=0&per=1s": 400,
		"POST /v1/rates/a?limit=1000001&per=1s": 400, "POST /v1/rates/a?limit=1&per=999ms": 400,
		"POST /v1/rates/a?limit=1&per=25h": 400, "POST /v1/rates/a?limit=1&per=1s&ttl=5s": 400,
		"POST /v1/rates/a?limit=1&per=1s&wait=11m": 400, "POST /v1/rates/zookeeper?limit=1&per=1s": 400,
		"GET /v1/rates/a?limit=0": 400, "GET /v1/rates/a?wait=1s&ttl=5s": 400,
		"DELETE /v1/rates/a?limit=1&per=1s": 405} {
		c.expect(9, code, what)
	}
}

// A GET request for a rate shows how many draws are used and left, for the time and the limit in the request.
// It does not count as a draw.
func TestLooksAtRates(t *testing.T) {
	t.Parallel()
	i := start(t, nil)
	c := caller{t, i.TicketAddr()}
	look := func(query, want string) string {
		t.Helper()
		a := c.expect(0, 200, "GET /v1/rates/api"+query)
		shown := regexp.MustCompile(`,"retryMs":([1-9][0-9]*)`).ReplaceAllString(strings.TrimSpace(a.body), "")
		expect.Equal(t, shown, want, "look %s", query)
		return a.body
	}
	look("", `{"v":1,"used":0}`)
	look("?limit=2&per=1h", `{"v":1,"limit":2,"perMs":3600000,"used":0,"left":2,"retryMs":0}`)
	_, err := client(t, i).Exists("/api", false)
	must.Fails(t, err, "a look makes the node")
	c.expect(0, 200, "POST /v1/rates/api?limit=2&per=1h")
	look("", `{"v":1,"perMs":3600000,"used":1}`)
	look("?limit=2", `{"v":1,"limit":2,"perMs":3600000,"used":1,"left":1,"retryMs":0}`)
	c.expect(0, 200, "POST /v1/rates/api?limit=2&per=1h")
	for range 3 {
		shown := look("?limit=2", `{"v":1,"limit":2,"perMs":3600000,"used":2,"left":0}`)
		expect.That(t, regexp.MustCompile(`"retryMs":3(5|600000)`).MatchString(shown), "shown: %s", shown)
	}
	look("?limit=1&per=1h", `{"v":1,"limit":1,"perMs":3600000,"used":2,"left":0}`)
	expect.Equal(t, c.expect(0, 409, "GET /v1/rates/api?per=2h").Error, "limit", "a longer time")
	must.Get(client(t, i).Create("/words", []byte("words"), 0))(t)
	expect.Equal(t, c.expect(0, 409, "GET /v1/rates/words").Error, "path")
	acl := []jute.ACL{{Perms: jute.PermWrite, ID: jute.ID{Scheme: "world", ID: "anyone"}}}
	must.Get(client(t, i).CreateACL("/hidden", nil, acl, 0))(t)
	c.expect(0, 403, "GET /v1/rates/hidden")
	c.expect(0, 200, "POST /v1/rates/hidden?limit=2&per=1h")
}

// Callers that wait at one server draw in the order in which they came. While no draw is free, they cause no
// log entry.
func TestCallersWaitInLineForDraws(t *testing.T) {
	t.Parallel()
	i := start(t, nil)
	c := caller{t, i.TicketAddr()}
	what := "POST /v1/rates/api?limit=1&per=2s&wait=1m"
	c.expect(1, 200, what)
	var order []int
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range 3 {
		all.Go(func() {
			if a, err := ask(t.Context(), c.at, 2+n, what); err == nil && a.Drawn {
				mu.Lock()
				order = append(order, n)
				mu.Unlock()
			}
		})
		eventually(t, "it waits", func() bool { return waits(i) == n+1 })
	}
	expect.Equal(t, c.expect(9, 429, "POST /v1/rates/api?limit=1&per=2s").Error, "rate", "past the line")
	all.Wait()
	expect.List(t, order, []int{0, 1, 2}, "the order")
}

var rateDraws = flag.Int("rates.draws", 2000, "how many draws are granted in TestK12DrawsWhileLeadersDie")

// K12: callers draw at three servers whose clocks differ and jump, while the leader is stopped again and
// again. Each tenth answer is lost, and its caller repeats the draw. No window of the rate has more draws
// than its limit.
func TestK12DrawsWhileLeadersDie(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers whose leader is stopped")
	}
	var clocks [3]atomic.Int64
	tokens := bearers(t)
	c := startThree(t, func(n int, o *server.Options) {
		o.TicketTokens = tokens
		o.Now = func() time.Time { return time.Now().Add(time.Duration(clocks[n].Load())) }
	})
	const limit, per = 500, 1000
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+time.Duration(*rateDraws)*20*time.Millisecond)
	defer cancel()
	var mu sync.Mutex
	at := map[int64]int64{} // when each draw was made, by the number of the draw
	var next, granted, answers atomic.Int64
	var all sync.WaitGroup
	for caller := range 24 {
		all.Go(func() {
			for ctx.Err() == nil && granted.Load() < int64(*rateDraws) {
				n := next.Add(1)
				what := fmt.Sprintf("POST /v1/rates/api?limit=%d&per=%dms&wait=%ds", limit, per, n%3*5)
				for k := caller; ctx.Err() == nil; k++ {
					a, err := ask(ctx, c.addr(k), int(n), what, bearer)
					if err != nil || a.code >= 500 || a.code == 429 {
						time.Sleep(5 * time.Millisecond)
						continue
					}
					if !a.Drawn {
						t.Errorf("draw %d: %d %s", n, a.code, a.body)
						return
					}
					mu.Lock()
					before, known := at[n]
					at[n] = a.At
					mu.Unlock()
					if known && before != a.At && a.Repeated {
						t.Errorf("draw %d was made at %d, and again at %d", n, before, a.At)
					}
					if answers.Add(1)%10 != 0 { // else it is lost, and the caller asks again
						break
					}
				}
				granted.Add(1)
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 12))
	stopped := make(chan struct{})
	go func() { all.Wait(); close(stopped) }()
	for kills := 0; ; {
		select {
		case <-stopped:
			t.Logf("%d draws, %d leaders were stopped", len(at), kills)
		case <-time.After(time.Second):
			clocks[r.IntN(3)].Store(int64(r.IntN(3000)-1500) * int64(time.Millisecond))
			kills += c.killLeader()
			continue
		}
		break
	}
	must.That(t, granted.Load() >= int64(*rateDraws), "only %d draws were granted", granted.Load())
	var times []int64
	for _, when := range at {
		times = append(times, when)
	}
	slices.Sort(times)
	for n := limit; n < len(times); n++ {
		first := times[n-limit]
		must.That(t, times[n]-first >= per, "%d draws from %d to %d", limit+1, first, times[n])
	}
}

// BenchmarkDrawsOverHTTP measures draws at one server, from 64 callers.
func BenchmarkDrawsOverHTTP(b *testing.B) {
	tokens := bearers(b)
	i := start(b, func(o *server.Options) { o.TicketTokens, o.DataDir = tokens, b.TempDir() })
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			r, _ := http.NewRequest(http.MethodPost,
				"http://"+i.TicketAddr()+"/v1/rates/api?limit=1000000&per=1m", nil)
			r.Header.Set("Authorization", "Bearer of-all")
			resp, err := hc.Do(r)
			if err != nil || resp.StatusCode != 200 {
				b.Errorf("%v, %v", resp, err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body) // otherwise the connection could not be used again
			resp.Body.Close()
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "draws/s")
}

// For the whole cluster, a quota limits how many rates exist below an identity's path. Existing rates
// continue.
func TestQuotaBoundsRates(t *testing.T) {
	t.Parallel()
	i := start(t, func(o *server.Options) { o.EnforceQuota = true })
	c, w := caller{t, i.TicketAddr()}, client(t, i)
	for _, n := range [][2]string{{"/ci"}, {"/zookeeper/quota/ci"},
		{"/zookeeper/quota/ci/zookeeper_limits", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=4"},
		{"/zookeeper/quota/ci/zookeeper_stats", "count=0,bytes=0"}} {
		must.Get(w.Create(n[0], []byte(n[1]), 0))(t)
	}
	for n := range 3 {
		c.expect(0, 200, fmt.Sprintf("POST /v1/rates/ci/%d?limit=9&per=1h", n))
	}
	over := c.expect(0, 429, "POST /v1/rates/ci/3?limit=9&per=1h")
	expect.Equal(t, over.Error, "limit")
	expect.Has(t, over.Text, "a quota of the path is used up")
	c.expect(0, 200, "POST /v1/rates/ci/2?limit=9&per=1h")
	c.expect(0, 200, "POST /v1/rates/other?limit=9&per=1h")
}

// The limit on nodes for an identity's rates holds for the whole cluster, at every server and after a change
// of the leader. At the limit, existing rates still work; another identity can still begin rates.
func TestBoundOfRatesHoldsForTheCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers whose leader is stopped")
	}
	file := filepath.Join(t.TempDir(), "tokens")
	must.OK(t, os.WriteFile(file, fmt.Appendf(nil, "one %x / rates=6 rate=9999\ntwo %x / rate=9999\n",
		sha256.Sum256([]byte("of-one")), sha256.Sum256([]byte("of-two"))), 0o600))
	tokens := must.Get(tickets.ReadTokens(file))(t)
	c := startThree(t, func(_ int, o *server.Options) { o.TicketTokens = tokens })
	draw := func(at int, who, path string, want int) reply {
		t.Helper()
		var a reply
		eventually(t, "a server answers", func() (answers bool) {
			var err error
			a, err = ask(t.Context(), c.addr(at), 0, "POST /v1/rates"+path+"?limit=100000&per=1h",
				"Authorization: Bearer of-"+who)
			return err == nil && a.code < 500
		})
		expect.Equal(t, a.code, want, "a draw of %s from %s at server %d: %s", who, path, at, a.body)
		return a
	}
	draw(0, "one", "/api/a", 200)
	draw(1, "one", "/api/b", 200)
	draw(2, "one", "/api/v2/c", 200)
	draw(0, "one", "/api/d", 200)
	for n := range 3 {
		over := draw(n, "one", "/api/e", 429)
		expect.Equal(t, over.Error, "limit")
		expect.Has(t, over.Text, "of this identity have 6 nodes")
		draw(n, "one", "/api/a", 200)
	}
	draw(0, "two", "/api/e", 200)
	draw(1, "one", "/api/e", 200)
	c.killLeader()
	for n := range 3 {
		draw(n, "one", "/api/f", 429)
	}
	w := client(t, c.servers()[0])
	must.OK(t, w.Delete("/api/b", -1))
	draw(2, "one", "/api/f", 200)
	draw(1, "one", "/api/g", 429)
}
