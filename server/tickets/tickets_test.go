package tickets_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/server/tickets"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// start() starts a server with a port for tickets.
func start(t testing.TB, change func(*server.Options)) *server.Instance {
	t.Helper()
	o := server.Options{ClientAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0", TicketAddr: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	i := must.Get(server.Start(ctx, o))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = i.Close(ctx)
	})
	must.OK(t, i.Ready(ctx))
	return i
}

// secret() returns a different secret for each number.
func secret(n int) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(strconv.Itoa(n))))[:40] }

type reply struct {
	code  int
	head  http.Header
	body  string
	Held  bool   `json:"held"`
	Token string `json:"token"`
	Slots []int  `json:"slots"`
	Error string `json:"error"`

	Drawn    bool  `json:"drawn"`
	At       int64 `json:"at"`
	Left     int64 `json:"left"`
	Repeated bool  `json:"repeated"`
	Retry    int64 `json:"retryMs"`

	NoSlots string `json:"noSlots"`
	Limit   int    `json:"limit"`
	Text    string `json:"text"`

	Position int              `json:"position"`
	Of       int              `json:"of"`
	Safe     int64            `json:"safeMs"`
	TTL      int64            `json:"ttlMs"`
	Behind   *tickets.Holder  `json:"behind"`
	Holders  []tickets.Holder `json:"holders"`
	Queued   int              `json:"queued"`
	Tickets  []tickets.One    `json:"tickets"`
	Asked    *struct{ By, Reason string }
}

// ask() sends a request. `what` has the method, the path and the query; `more` has header lines.
func ask(ctx context.Context, at string, n int, what string, more ...string) (reply, error) {
	method, path, _ := strings.Cut(what, " ")
	r, err := http.NewRequestWithContext(ctx, method, "http://"+at+path, nil)
	if err != nil {
		return reply{}, err
	}
	if n > 0 {
		r.Header.Set("Zlock-Ticket", secret(n))
	}
	for _, line := range more {
		name, value, _ := strings.Cut(line, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	a := reply{code: resp.StatusCode, head: resp.Header, body: string(b)}
	if err == nil && len(b) > 0 {
		err = json.Unmarshal(b, &a)
	}
	return a, err
}

// caller sends requests to one server.
type caller struct {
	t  *testing.T
	at string
}

func (c caller) ask(n int, what string, more ...string) reply {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	return must.Get(ask(ctx, c.at, n, what, more...))(c.t)
}

func (c caller) expect(n int, code int, what string, more ...string) reply {
	c.t.Helper()
	a := c.ask(n, what, more...)
	expect.Equal(c.t, a.code, code, "%s: %s", what, a.body)
	return a
}

// A long text of another client is cut between two characters, not inside one.
func TestTextsOfOthersAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	i := start(t, nil)
	n := must.Get(zk.Dial(t.Context(), i.ClientAddr(), zk.Options{}))(t)
	t.Cleanup(func() { n.Close(context.Background()) })
	must.Get(n.Create(t.Context(), zk.Create{Path: "/l"}))(t)
	reason := strings.Repeat("x", 199)
	must.Get(n.Create(t.Context(), zk.Create{Mode: zk.EphemeralSequential,
		Path: "/l/" + recipe.NodeName(recipe.LayoutCurator, recipe.RoleLock, recipe.NewID(1, 2), "test"),
		Data: recipe.EncodeOwner(recipe.Owner{Reason: reason + "éx"})}))(t)
	q := caller{t, i.TicketAddr()}.expect(1, 202, "POST /v1/locks/l")
	must.That(t, q.Behind != nil, "%s", q.body)
	expect.Equal(t, q.Behind.Reason, reason)
}

// While a ticket holds, while it waits, and after its end, answers have the codes of docs/tickets.md.
func TestTheLifeOfATicket(t *testing.T) {
	t.Parallel()
	i := start(t, nil)
	c := caller{t, i.TicketAddr()}
	a := c.expect(1, 201, "POST /v1/locks/ci/deploy?ttl=60s&reason=web&who=ann")
	expect.That(t, a.Held, "it does not hold: %s", a.body)
	expect.That(t, a.Token != "", "it has no token: %s", a.body)
	expect.That(t, a.Safe > 40_000 && a.Safe <= 47_700, "it is safe for %v ms, want 40,000 to 47,700", a.Safe)
	held := a.head.Get("ETag")
	expect.Equal(t, held, `"h-`+a.Token+`"`)
	again := c.expect(1, 200, "POST /v1/locks/ci/deploy")
	expect.Equal(t, again.Token, a.Token, "again: token")
	expect.Equal(t, again.TTL, 60_000, "again: TTL")

	q := c.expect(2, 202, "POST /v1/locks/ci/deploy?ttl=30s")
	expect.That(t, !q.Held, "queued: %s", q.body)
	expect.Equal(t, q.Position, 1, "queued: position")
	expect.Equal(t, q.Of, 2, "queued")
	expect.Equal(t, q.TTL, 30_000, "queued: TTL")
	if expect.That(t, q.Behind != nil, "behind: %s", q.body) {
		expect.Equal(t, q.Behind.User, "ann", "behind: user")
		expect.Equal(t, q.Behind.Reason, "web", "behind: reason")
	}
	expect.Equal(t, q.head.Get("ETag"), `"q-1"`)
	expect.Equal(t, q.head.Get("Retry-After"), "15")
	c.expect(2, 304, "POST /v1/locks/ci/deploy", `If-None-Match: "q-1"`)
	c.expect(2, 304, "GET /v1/locks/ci/deploy", `If-None-Match: "q-1"`)
	c.expect(2, 412, "DELETE /v1/locks/ci/deploy", "If-Match: "+held)
	c.expect(3, 409, "POST /v1/locks/ci/deploy?queue=no")
	c.expect(3, 404, "GET /v1/locks/ci/deploy")
	c.expect(3, 404, "POST /v1/locks/ci/deploy", "If-Match: *")
	c.expect(2, 409, "POST /v1/locks/ci/other")
	shown := c.expect(0, 200, "GET /v1/locks/ci/deploy")
	if expect.Equal(t, len(shown.Holders), 1, "number of holders %v", shown.Holders) {
		expect.Equal(t, shown.Queued, 1, "queued")
	}
	expect.Equal(t, shown.Holders[0].User, "ann")
	list := c.expect(0, 200, "GET /v1/tickets")
	if expect.Equal(t, len(list.Tickets), 2, "number of tickets %v", list.Tickets) {
		expect.That(t, list.Tickets[0].Held, "%s", list.body)
		expect.That(t, !list.Tickets[1].Held, "%s", list.body)
	}

	granted := make(chan reply, 1)
	go func() {
		a, _ := ask(context.Background(), i.TicketAddr(), 2, "POST /v1/locks/ci/deploy?wait=1m")
		granted <- a
	}()
	eventually(t, "it waits", func() bool { return c.ask(0, "GET /v1/tickets").code == 200 && waits(i) == 1 })
	c.expect(1, 204, "DELETE /v1/locks/ci/deploy", "If-Match: "+held)
	g := <-granted
	expect.Equal(t, g.code, 200, "granted: code")
	expect.That(t, g.Held, "granted: %d %s", g.code, g.body)
	expect.That(t, token(t, g) > token(t, a), "granted: %d %s", g.code, g.body)
	for _, what := range []string{"DELETE", "POST", "GET"} {
		over := c.expect(1, 410, what+" /v1/locks/ci/deploy")
		expect.Equal(t, over.Error, "given", what)
	}
	c.expect(2, 204, "DELETE /v1/locks/ci/deploy")
	expect.Equal(t, len(c.expect(0, 200, "GET /v1/tickets").Tickets), 0, "tickets")
}

func token(t *testing.T, a reply) int64 { return must.Get(strconv.ParseInt(a.Token, 10, 64))(t) }

func waits(i *server.Instance) int { return i.TicketWaits() }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		must.That(t, time.Now().Before(end), "%s: not within a minute", what)
	}
}

// client() opens a session as another program does.
func client(t *testing.T, i *server.Instance) *wire.Conn {
	c := must.Get(wire.Open(i.ClientAddr()))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// The answer about a ticket that is over says why: its time ended, its node was removed, its caller gave it
// back, or an operator ended it.
func TestWhyATicketIsOver(t *testing.T) {
	t.Parallel()
	i := start(t, nil)
	c := caller{t, i.TicketAddr()}
	until := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)
	a := c.expect(1, 201, "POST /v1/locks/a?ttl=10m&until="+until)
	expect.That(t, a.Safe <= 1000, "%s: no second is left for a clock of the leader that is ahead", a.body)
	c.expect(2, 202, "POST /v1/locks/a?ttl=4s") // no caller renews this ticket, so it expires
	c.expect(3, 202, "POST /v1/locks/a")
	for _, n := range []int{1, 2} {
		var over reply
		eventually(t, "it ends", func() bool { over = c.ask(n, "GET /v1/locks/a"); return over.code == 410 })
		expect.Equal(t, over.Error, "expired", "ticket %d", n)
		expect.Has(t, over.Text, "the work may have overlapped")
	}
	node := func(n int) (path string) {
		i.Node().View(func(st *state.State) {
			h := sha256.Sum256([]byte("zlockd ticket\x00" + secret(n)))
			s, _ := st.Sessions().Ticket(session.Hash(h))
			path = st.Tree().SomeEphemeralsOf(s.ID, 1)[0]
		})
		return path
	}
	expect.Equal(t, c.expect(3, 200, "POST /v1/locks/a?wait=1m").Held, true)
	must.OK(t, client(t, i).Delete(node(3), -1))
	expect.Equal(t, c.expect(3, 410, "POST /v1/locks/a").Error, "removed")
	c.expect(4, 201, "POST /v1/locks/a")
	c.expect(5, 202, "POST /v1/locks/a")
	for _, n := range []int{4, 5} {
		_, err := client(t, i).SetData(node(n), []byte("__REVOKE__"), -1)
		must.OK(t, err)
	}
	expect.That(t, c.expect(4, 200, "POST /v1/locks/a?wait=1m").Asked != nil, "the holder is not told")
	expect.Equal(t, c.expect(5, 410, "POST /v1/locks/a?wait=1m").Error, "revoked")
}

// A request that makes no sense is refused with an explanation, and changes nothing.
func TestOddRequests(t *testing.T) {
	t.Parallel()
	i := start(t, nil)
	c := caller{t, i.TicketAddr()}
	long := strings.Repeat("x", 201)
	for what, code := range map[string]int{
		"POST /v1/locks/a?ttl=3s":                                400,
		"POST /v1/locks/a?ttl=25h":                               400,
		"POST /v1/locks/a?ttl=x":                                 400,
		"POST /v1/locks/a?ttl=-5s":                               400,
		"POST /v1/locks/a?wait=11m":                              400,
		"POST /v1/locks/a?mode=all":                              400,
		"POST /v1/locks/a?layout=latch":                          400,
		"POST /v1/locks/a?queue=maybe":                           400,
		"POST /v1/locks/a?permits=2":                             400,
		"POST /v1/locks/a?limit=2":                               400,
		"POST /v1/locks/a?mode=permit&limit=0":                   400,
		"POST /v1/locks/a?mode=permit&limit=1000001":             400,
		"POST /v1/locks/a?mode=permit&permits=101&limit=200":     400,
		"POST /v1/locks/a?mode=permit&permits=-1":                400,
		"POST /v1/locks/a?mode=permit&layout=kazoo&limit=2":      400,
		"POST /v1/locks/a?mode=permit":                           409, // no limit is stored
		"POST /v1/locks/a?mode=permit&limit=2&permits=3":         409,
		"POST /v1/locks/a?until=tomorrow":                        400,
		"POST /v1/locks/a?until=2020-01-01T00:00:00Z":            400,
		"POST /v1/locks/a?until=0001-01-01T00:00:00Z":            400,
		"POST /v1/locks/a?nonsense=1":                            400,
		"POST /v1/locks/a?ttl=5s&ttl=6s":                         400,
		"POST /v1/locks/a?reason=" + long:                        400,
		"POST /v1/locks/a?who=%00":                               400,
		"POST /v1/locks/a?who=%ff":                               400,
		"POST /v1/locks/":                                        400,
		"POST /v1/locks":                                         400,
		"POST /v1/locks//a":                                      400,
		"POST /v1/locks/a/":                                      400,
		"POST /v1/locks/a/../b":                                  400,
		"POST /v1/locks/zookeeper/config":                        400,
		"POST /v1/locks/" + strings.Repeat("a", 40<<10):          431,
		"PUT /v1/locks/a":                                        405,
		"OPTIONS /v1/locks/a":                                    405,
		"POST /v1/tickets":                                       405,
		"GET /":                                                  400, // not 404: 404 says that a ticket is over
		"GET /v1/locksmith":                                      400,
		"POST /v1/locks/a?reason=" + strings.Repeat("x", 10<<10): 400,
	} {
		t.Run(what[:min(len(what), 60)], func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			a, err := ask(ctx, c.at, 1, what)
			if code != 431 { // this answer is from net/http
				must.OK(t, err)
			}
			expect.Equal(t, a.code, code, "%s", a.body)
		})
	}
	for name, value := range map[string]string{"short": "abc", "long": strings.Repeat("abcdefghij", 7),
		"weak": strings.Repeat("a", 30), "a blank": "abcdefghij klmnopqrstuvwxyz", "none": ""} {
		a := c.expect(0, 400, "POST /v1/locks/a", "Zlock-Ticket: "+value)
		expect.That(t, value == "" || !strings.Contains(a.body, value), "%s: the answer tells the secret", name)
	}
	form := "application/x-www-form-urlencoded"
	for what, body := range map[string]struct {
		kind, text string
		code       int
	}{
		"a long body":           {form, "reason=" + strings.Repeat("x", 9<<10), 413},
		"parameters as JSON":    {"application/json", `{"queue":"no"}`, 400},
		"parameters by no name": {"", "queue=no", 400},
		"parameters in parts":   {"multipart/form-data; boundary=x", "--x--", 400},
	} {
		r := must.Get(http.NewRequest(http.MethodPost, "http://"+c.at+"/v1/locks/a",
			strings.NewReader(body.text)))(t)
		r.Header.Set("Content-Type", body.kind)
		r.Header.Set("Zlock-Ticket", secret(1))
		resp := must.Get(http.DefaultClient.Do(r))(t)
		resp.Body.Close()
		expect.Equal(t, resp.StatusCode, body.code, "%s", what)
	}
	expect.Equal(t, len(c.expect(0, 200, "GET /v1/tickets").Tickets), 0, "tickets")
	c.expect(1, 421, "POST /v1/locks/a", "Host: evil.example")
	draw := "POST /v1/rates/a?limit=1&per=1s"
	c.expect(0, 403, draw, "Origin: http://evil.example")
	c.expect(0, 403, draw, "Sec-Fetch-Site: cross-site")
	c.expect(0, 200, draw, "Origin: http://"+c.at)
}

// A token identifies a caller. Each identity has its own rights, limits and tickets.
func TestIdentities(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	sum := func(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }
	must.OK(t, os.WriteFile(file, []byte("# callers\nci "+sum("token-of-ci")+" /ci tickets=4 path=2 waits=1\n"+
		"ops "+sum("token-of-ops")+" /\n"), 0o600))
	i := start(t, func(o *server.Options) { o.TicketTokens = must.Get(tickets.ReadTokens(file))(t) })
	c := caller{t, i.TicketAddr()}
	ci, ops := "Authorization: Bearer token-of-ci", "Authorization: Bearer token-of-ops"
	c.expect(1, 401, "POST /v1/locks/ci/a")
	c.expect(1, 401, "POST /v1/locks/ci/a", "Authorization: Bearer wrong")
	c.expect(1, 403, "POST /v1/locks/ops", ci)
	c.expect(1, 403, "POST /v1/locks/cider", ci)
	c.expect(1, 201, "POST /v1/locks/ci/a", ci)
	c.expect(1, 404, "POST /v1/locks/ci/a", ops)
	c.expect(1, 404, "DELETE /v1/locks/ci/a", ops)
	c.expect(1, 404, "GET /v1/locks/ci/a", ops)
	c.expect(2, 202, "POST /v1/locks/ci/a", ci)
	a := c.expect(3, 429, "POST /v1/locks/ci/a", ci)
	expect.That(t, a.head.Get("Retry-After") != "", "%s", a.body)
	expect.Has(t, a.Text, "on this path", "text")
	c.expect(3, 201, "POST /v1/locks/ci/b", ci)
	c.expect(4, 201, "POST /v1/locks/ci/c", ci)
	c.expect(5, 429, "POST /v1/locks/ci/d", ci)
	expect.Equal(t, len(c.expect(0, 200, "GET /v1/tickets", ci).Tickets), 4, "tickets of ci")
	expect.Equal(t, len(c.expect(0, 200, "GET /v1/tickets", ops).Tickets), 0, "tickets of ops")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = ask(ctx, c.at, 2, "POST /v1/locks/ci/a?wait=1m", ci) }()
	eventually(t, "it waits", func() bool { return waits(i) == 1 })
	c.expect(2, 429, "POST /v1/locks/ci/a?wait=1m", ci)
	cancel()
	eventually(t, "it waits no longer", func() bool { return waits(i) == 0 })
	for name, text := range map[string]string{"no hash": "ci", "a short hash": "ci 12 /",
		"no slash": "ci " + sum("x") + " ci", "a bound": "ci " + sum("x") + " / speed=1",
		"no token": "ci " + sum("") + " /",
		"twice":    "a " + sum("x") + " /\nb " + sum("x") + " /"} {
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := tickets.ReadTokens(file)
		must.Fails(t, err, name)
		expect.That(t, strings.Contains(err.Error(), "line"), "%s: %v", name, err)
	}
	must.OK(t, os.WriteFile(file, []byte("ci "+sum("x")+" /\n"), 0o600))
	for mode, refused := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o602: true} {
		must.OK(t, os.Chmod(file, mode))
		_, err := tickets.ReadTokens(file)
		told := err != nil && strings.Contains(err.Error(), "chmod o-rwx ")
		expect.Equal(t, told, refused, "mode %o: %v", mode, err)
	}
}

// TestK8 sends each request of a program twice, and loses the answer to each in turn. The ticket reaches the
// same state as without a loss, and leaves no extra contender behind.
func TestK8EachAnswerMayBeLost(t *testing.T) {
	t.Parallel()
	i := start(t, nil)
	c := caller{t, i.TicketAddr()}
	program := []string{"POST %s?ttl=20s", "POST %s", "POST %s?ttl=30s", "GET %s", "POST %s?wait=1s",
		"DELETE %s"}
	run := func(n, lost int) (codes []int) {
		path := fmt.Sprintf("/v1/locks/lost/%d", n)
		for at, step := range program {
			what := fmt.Sprintf(step, path)
			if at == lost || lost == len(program) {
				c.ask(n, what) // its answer is lost
			}
			a := c.ask(n, what)
			if a.code == 201 || a.code == 410 && a.Error == "given" {
				a.code = map[int]int{201: 200, 410: 204}[a.code] // a repetition gets 200 for 201, and 410 for 204
			}
			codes = append(codes, a.code)
		}
		return codes
	}
	want := run(1, -1)
	for lost := range len(program) + 1 {
		expect.List(t, run(2+lost, lost), want, "lost answer %d", lost)
	}
	i.Node().View(func(st *state.State) {
		expect.Equal(t, st.Sessions().Tickets(), 0, "tickets that are left")
		expect.Equal(t, st.Tree().EphemeralCount(), 0, "places that are left")
	})
	// A late repetition of a request does not open the ticket again.
	late := c.ask(1, "POST /v1/locks/lost/1")
	expect.Equal(t, late.code, 410, "late: code")
	expect.Equal(t, late.Error, "given", "late: error")
}

// TestK10 looks for the secret of a ticket wherever a server writes or shows something.
func TestK10ASecretIsNowhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log bytes.Buffer
	var mu sync.Mutex
	i := start(t, func(o *server.Options) {
		o.DataDir = dir
		all := &slog.HandlerOptions{Level: slog.LevelDebug}
		o.Logger = slog.New(slog.NewTextHandler(locked{&mu, &log}, all))
	})
	c := caller{t, i.TicketAddr()}
	c.expect(1, 201, "POST /v1/locks/a?reason=why")
	c.expect(2, 202, "POST /v1/locks/a")
	c.expect(2, 204, "DELETE /v1/locks/a")
	c.expect(1, 409, "POST /v1/locks/b")
	must.OK(t, i.Node().Snapshot())
	places := map[string]string{}
	for _, page := range []string{"/commands/dump", "/commands/connections", "/locks", "/locks/a", "/sessions",
		"/tree/a", "/top", "/debug/trace?seconds=1", "/metrics", "/health"} {
		resp := must.Get(http.Get("http://" + i.AdminAddr() + page))(t)
		b := must.Get(io.ReadAll(resp.Body))(t)
		resp.Body.Close()
		places[page] = string(b)
	}
	must.OK(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			b, _ := os.ReadFile(path)
			places[path] = string(b)
		}
		return err
	}))
	mu.Lock()
	places["the log"] = log.String()
	mu.Unlock()
	for where, text := range places {
		for n := 1; n <= 2; n++ {
			expect.That(t, !strings.Contains(text, secret(n)), "%s has the secret", where)
		}
	}
}

type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// Tickets and contenders of other programs stand in one queue.
func TestTicketsQueueWithOthers(t *testing.T) {
	t.Parallel()
	i := start(t, nil)
	c := caller{t, i.TicketAddr()}
	other := client(t, i)
	make := func(path string) string {
		return must.Get(other.Create(path, nil, jute.FlagEphemeralSequential))(t)
	}
	c.expect(1, 201, "POST /v1/locks/q")
	curator := make("/q/_c_6f1ed002-ab5c-4b1f-a0ce-75ab2e1ed1a2-lock-")
	a := c.expect(2, 202, "POST /v1/locks/q")
	expect.Equal(t, a.Position, 2, "behind Curator's contender")
	c.expect(1, 204, "DELETE /v1/locks/q")
	expect.Equal(t, c.expect(2, 202, "POST /v1/locks/q").Position, 1, "while Curator's contender holds")
	must.OK(t, other.Delete(curator, -1))
	expect.That(t, c.expect(2, 200, "POST /v1/locks/q").Held, "behind no other contender")
	make("/q/6f1ed002ab5c4b1fa0ce75ab2e1ed1a2__rlock__") // another kind of lock, which came later
	expect.That(t, c.expect(2, 200, "POST /v1/locks/q").Held, "a later contender of another kind counts")
	expect.Equal(t, c.expect(3, 409, "POST /v1/locks/q").Error, "mixed")

	c.expect(4, 201, "POST /v1/locks/rw?mode=shared")
	c.expect(5, 201, "POST /v1/locks/rw?mode=shared")
	expect.Equal(t, c.expect(6, 202, "POST /v1/locks/rw").Position, 2, "a writer behind two readers")
	expect.Equal(t, c.expect(7, 202, "POST /v1/locks/rw?mode=shared").Position, 1, "a reader behind the writer")
}

// An identity that opens more tickets than it may in a second is refused. Other identities are not.
func TestAFloodOfOpens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	hash := func(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }
	lines := "flood " + hash("token-of-flood") + " / rate=5 tickets=1000 path=1000\n" +
		"other " + hash("token-of-other") + " /\n"
	must.OK(t, os.WriteFile(file, []byte(lines), 0o600))
	i := start(t, func(o *server.Options) { o.TicketTokens = must.Get(tickets.ReadTokens(file))(t) })
	c := caller{t, i.TicketAddr()}
	refused := 0
	for n := range 200 {
		switch a := c.ask(1+n, "POST /v1/locks/flood", "Authorization: Bearer token-of-flood"); a.code {
		case 201, 202:
		case 429:
			refused++
		default:
			t.Errorf("%d: %s", a.code, a.body)
		}
	}
	expect.That(t, refused > 0, "200 tickets at once were opened")
	c.expect(999, 201, "POST /v1/locks/other", "Authorization: Bearer token-of-other")
}

// An identity that sends too many requests is delayed and then refused. Other identities are not affected.
func TestRequestsOfAnIdentityArePaced(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	hash := func(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }
	must.OK(t, os.WriteFile(file, []byte("flood "+hash("token-of-flood")+" / rate=1 waits=1\n"+
		"other "+hash("token-of-other")+" /\none "+hash("token-of-one")+" / rate=1\ntwo "+
		hash("token-of-two")+" / rate=1\n"), 0o600))
	i := start(t, func(o *server.Options) { o.TicketTokens = must.Get(tickets.ReadTokens(file))(t) })
	c := caller{t, i.TicketAddr()}
	var all sync.WaitGroup
	var refused atomic.Int64
	for range 90 {
		all.Go(func() {
			a := c.ask(0, "GET /v1/tickets", "Authorization: Bearer token-of-flood")
			if a.code == 429 && a.Error == "limit" && a.head.Get("Retry-After") != "" {
				refused.Add(1)
			} else if a.code != 200 {
				t.Errorf("%d: %s", a.code, a.body)
			}
		})
	}
	for n := range 9 {
		c.expect(1+n, 201, fmt.Sprint("POST /v1/locks/other/", n), "Authorization: Bearer token-of-other")
	}
	all.Wait()
	expect.That(t, refused.Load() >= 70, "only %d of 90 requests at once are refused: 4 a second are allowed",
		refused.Load())
	eventually(t, "it may ask again", func() bool {
		return c.ask(0, "GET /v1/tickets", "Authorization: Bearer token-of-flood").code == 200
	})
	w := client(t, i)
	must.Get(w.Create("/many", nil, 0))(t)
	for n := range 3000 { // these nodes are not contenders, but the server reads them too
		must.Get(w.Create(fmt.Sprint("/many/", n), nil, 0))(t)
	}
	for n, look := range []string{"GET /v1/locks/many", "POST /v1/locks/many?queue=no&mode=permit"} {
		who := []string{"one", "two"}[n]
		c.ask(50*n, look, "Authorization: Bearer token-of-"+who)
		c.expect(0, 429, "GET /v1/tickets", "Authorization: Bearer token-of-"+who)
	}
}

// If a token is removed from the file, a wait that began with it ends. A server that had tokens admits no
// caller without one.
func TestATokenThatIsTakenAwayEndsItsWaits(t *testing.T) {
	t.Parallel()
	read := func(names ...string) *tickets.Tokens {
		file := filepath.Join(t.TempDir(), "tokens")
		var b bytes.Buffer
		for _, name := range names {
			fmt.Fprintf(&b, "%s %x /\n", name, sha256.Sum256([]byte("of-"+name)))
		}
		must.OK(t, os.WriteFile(file, b.Bytes(), 0o600))
		return must.Get(tickets.ReadTokens(file))(t)
	}
	i := start(t, func(o *server.Options) { o.TicketTokens = read("ci", "ops") })
	c := caller{t, i.TicketAddr()}
	const ci, ops = "Authorization: Bearer of-ci", "Authorization: Bearer of-ops"
	c.expect(1, 201, "POST /v1/locks/q", ops)
	wait := func() chan reply {
		ended := make(chan reply, 1)
		go func() { ended <- c.ask(2, "POST /v1/locks/q?wait=9m", ci) }()
		eventually(t, "ci waits", func() bool { return waits(i) == 1 })
		return ended
	}
	ended := wait()
	i.SetTicketTokens(read("ci", "ops"))
	expect.Equal(t, waits(i), 1, "waits after the same tokens were read again")
	i.SetTicketTokens(read("ops"))
	expect.Equal(t, (<-ended).code, 503, "the wait of ci, whose token is gone")
	c.expect(2, 401, "POST /v1/locks/q", ci)
	c.expect(1, 200, "POST /v1/locks/q", ops)
	i.SetTicketTokens(nil)
	c.expect(1, 401, "POST /v1/locks/q", ops)
	c.expect(3, 401, "POST /v1/locks/q")
}
