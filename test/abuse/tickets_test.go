package abuse

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
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

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// All secrets and tokens of this test begin with these texts. Servers must never write or show them.
const (
	secretMark = "SeCrEt-abuse-"
	tokenMark  = "ToKeN-abuse-"
)

// The constant stolen is a secret of the innocent caller that the attacker knows. The ticket with this secret
// holds the lock stolenPath.
const (
	stolen     = secretMark + "of-the-innocent"
	stolenPath = "/v1/locks/innocent/held?ttl=10m"
)

func secretOf(n int64) string {
	return fmt.Sprintf("%s%x", secretMark, sha256.Sum256(fmt.Append(nil, n)))[:60]
}

// send() sends a request to the port for tickets and returns the code of the answer.
func send(ctx context.Context, h *http.Client, addr, who, secret, what string) (int, error) {
	method, path, _ := strings.Cut(what, " ")
	r, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+tokenMark+who)
	if secret != "" {
		r.Header.Set("Zlock-Ticket", secret)
	}
	resp, err := h.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// ticketFlood sends requests over n connections to each server. made() returns a request and its secret.
func (a *attacker) ticketFlood(n int, who string, made func(k int64) (what, secret string)) {
	h := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n,
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) { return a.dial(addr) }}}
	var count atomic.Int64
	a.each(n*len(a.All), func(i int) error {
		what, secret := made(count.Add(1))
		_, err := send(a.ctx, h, a.All[i%len(a.All)].Ticket, who, secret, what)
		return err
	})
}

// rawTickets sends a text over n connections to each server, and then calls f to read the answer.
func (a *attacker) rawTickets(n int, text func() string, f func(net.Conn) error) {
	a.each(n*len(a.All), func(i int) error {
		return a.raw(a.All[i%len(a.All)].Ticket, func(c net.Conn) error {
			if _, err := io.WriteString(c, text()); err != nil {
				return err
			}
			return f(c)
		})
	})
}

// ticketAttacks use the port for tickets. The attacker has a token, and its identity has the default limits.
var ticketAttacks = []attack{
	{"opens", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			return fmt.Sprintf("POST /v1/locks/attack/%d?ttl=4s", k), secretOf(k)
		})
	}},
	{"opens of deep paths", func(a *attacker) {
		deep := strings.Repeat("/d", 1000)
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			method := [2]string{"POST", "DELETE"}[k%2]
			return fmt.Sprintf("%s /v1/locks/attack/deep/%d%s?ttl=4s", method, k/2%20, deep), secretOf(k / 2)
		})
	}},
	{"opens in the innocent queue", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			return "POST /v1/locks/innocent/other?ttl=4s", secretOf(k)
		})
	}},
	{"opened and given back", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			method := [2]string{"POST", "DELETE"}[k%2]
			return fmt.Sprintf("%s /v1/locks/attack/%d?ttl=4s", method, k/2%20), secretOf(k / 2)
		})
	}},
	{"renewals with another time", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			return fmt.Sprintf("POST /v1/locks/attack/%d?ttl=%ds", k%90, 60+k/90%50), secretOf(k % 90)
		})
	}},
	{"renewals", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			return fmt.Sprintf("POST /v1/locks/attack/%d", k%90), secretOf(k % 90)
		})
	}},
	{"lists", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(int64) (string, string) { return "GET /v1/tickets", "" })
	}},
	{"guessed secrets", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			return [2]string{"GET", "DELETE"}[k%2] + " /v1/locks/innocent/held", secretOf(rand.Int64())
		})
	}},
	{"a stolen secret", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			return [3]string{"GET", "DELETE", "POST"}[k%3] + " " + stolenPath, stolen
		})
	}},
	{"wrong tokens", func(a *attacker) {
		a.ticketFlood(300, "guessed", func(k int64) (string, string) {
			return "POST /v1/locks/attack/x", secretOf(k)
		})
	}},
	{"long waits", func(a *attacker) {
		a.ticketFlood(60, "attacker", func(k int64) (string, string) {
			return "POST /v1/locks/attack/wait?ttl=1m&wait=10m", secretOf(k % 20)
		})
	}},
	{"waits that end early", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			return "POST /v1/locks/attack/wait?ttl=1m&wait=1ms", secretOf(k % 9)
		})
	}},
	{"odd parameters", func(a *attacker) {
		a.ticketFlood(30, "attacker", func(k int64) (string, string) {
			b := make([]byte, rand.IntN(4000))
			for i := range b {
				b[i] = "&=%/?;0aZ-~.,'"[rand.IntN(14)]
			}
			return "POST /v1/locks/attack/odd?reason=x&" + string(b), secretOf(k)
		})
	}},
	{"slow readers", func(a *attacker) {
		one := "GET /v1/tickets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + tokenMark +
			"attacker\r\n\r\n"
		a.rawTickets(100, func() string { return strings.Repeat(one, 500) }, hold)
	}},
	{"half a request", func(a *attacker) {
		a.rawTickets(130, func() string { return "POST /v1/locks/attack/half HTTP/1.1\r\nHost: loc" }, hold)
	}},
	{"half a body", func(a *attacker) {
		a.rawTickets(130, func() string {
			return "POST /v1/locks/attack/half HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " +
				tokenMark + "attacker\r\nZlock-Ticket: " + secretOf(rand.Int64()) +
				"\r\nContent-Length: 5000\r\n" + "Content-Type: application/x-www-form-urlencoded\r\n\r\nttl="
		}, hold)
	}},
}

// caller takes tickets and gives them back, and draws from a rate. Its address and identity are not the
// attacker's.
type caller struct {
	h     *http.Client
	addrs []string

	mu      sync.Mutex
	took    []time.Duration
	trouble error
}

func (c *caller) run(ctx context.Context, lane int64) {
	for k := lane << 40; ctx.Err() == nil; k++ {
		addr, secret := c.addrs[k%int64(len(c.addrs))], secretOf(-1-k)
		path := fmt.Sprintf(" /v1/locks/innocent/%d", lane)
		began := time.Now()
		code, err := send(ctx, c.h, addr, "innocent", secret, "POST"+path)
		if err == nil && code == http.StatusCreated {
			code, err = send(ctx, c.h, addr, "innocent", secret, "DELETE"+path)
		}
		if err == nil && code == http.StatusNoContent {
			draw := fmt.Sprintf("POST /v1/rates/innocent/rate%d?limit=1000000&per=1m", lane)
			code, err = send(ctx, c.h, addr, "innocent", "", draw)
		}
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		switch {
		case err == nil && code == http.StatusOK:
			c.took = append(c.took, time.Since(began))
		case c.trouble == nil:
			c.trouble = fmt.Errorf("code %d after %v: %w", code, time.Since(began), err)
		}
		c.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
}

// median() returns how many rounds of a ticket and a draw ended since the last call of median(), and the
// median of their times.
func (c *caller) median() (middle time.Duration, n int, trouble error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := slices.Sorted(slices.Values(c.took))
	trouble = c.trouble
	c.took, c.trouble = nil, nil
	if len(took) == 0 {
		return 0, 0, trouble
	}
	return took[len(took)/2], len(took), trouble
}

// TestTicketAbuse sets hostile callers on the port for tickets. An innocent caller must not become more than
// twice as slow or lose a ticket, and no secret may be exposed.
func TestTicketAbuse(t *testing.T) {
	limited(t)
	dir := t.TempDir()
	tokens := ""
	for _, who := range []string{"attacker", "innocent"} {
		tokens += fmt.Sprintf("%s %x /\n", who, sha256.Sum256([]byte(tokenMark+who)))
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "tokens"), []byte(tokens), 0o600))
	c := cluster.Three(t, "--pprof", "--ticket-addr", "127.0.0.1:0",
		"--ticket-tokens", filepath.Join(dir, "tokens"), "--audit-log", filepath.Join(dir, "audit{id}.log"),
		"--backup-dir", filepath.Join(dir, "backup{id}"), "--backup-interval", "1m", "--log-level", "debug")
	to := targets{}
	for _, s := range c.Servers {
		x := targetOf(s)
		x.Ticket = ticketPort(t, s)
		to.All = append(to.All, x)
	}
	good := &caller{h: &http.Client{Timeout: 30 * time.Second}}
	for _, x := range to.All {
		good.addrs = append(good.addrs, x.Ticket)
	}
	ctx, cancel := context.WithCancel(t.Context())
	code := must.Get(send(ctx, good.h, good.addrs[0], "innocent", stolen, "POST "+stolenPath))(t)
	must.Equal(t, code, http.StatusCreated, "the first ticket")
	var all sync.WaitGroup
	for lane := range int64(3) {
		all.Go(func() { good.run(ctx, 1+lane) })
	}
	pattern := regexp.MustCompile(*only)
	var table strings.Builder
	table.WriteString("| attack | innocent tickets | their median, before and in the attack |\n|---|---|---|\n")
	for _, x := range slices.Concat(ticketAttacks, rateAttacks) {
		if !pattern.MatchString(x.name) {
			continue
		}
		time.Sleep(time.Second)
		good.median()
		time.Sleep(max(*lasts/3, time.Second))
		before, _, _ := good.median()
		list := measureAll(t, c, func() { expect.OK(t, launch(x.name, to, *lasts), x.name) })
		during, n, trouble := good.median()
		fmt.Fprintf(&table, "| %s | %d | %v, %v |\n", x.name, n, before, during)
		for i, m := range list {
			expect.That(t, m.peak-m.before <= mostMemory, "%s: server %d took %d MiB more", x.name, i+1,
				(m.peak-m.before)>>20)
		}
		expect.OK(t, trouble, x.name)
		expect.That(t, !*strict || during <= 2*before, "%s: the innocent takes %v instead of %v", x.name,
			during, before)
	}
	cancel()
	all.Wait()
	t.Logf("%v each, three servers:\n%s", *lasts, &table)
	code = must.Get(send(t.Context(), good.h, good.addrs[1], "innocent", stolen, "POST "+stolenPath))(t)
	expect.Equal(t, code, http.StatusOK, "the ticket whose secret is stolen")
	nowhere(t, c, dir)
	for _, s := range c.Servers {
		must.That(t, s.Running(), "server %d is gone", s.ID)
		s.WaitServing(time.Minute)
	}
	c.SameState()
}

// ticketPort returns the address at which a server serves tickets.
func ticketPort(t *testing.T, s *cluster.Server) string {
	s.AwaitLog("serving tickets")
	f := must.Get(os.Open(s.LogFile()))(t)
	defer f.Close()
	addr := regexp.MustCompile(`serving tickets.*addr"?[=:]"?([0-9.:]+)`)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if m := addr.FindStringSubmatch(lines.Text()); m != nil {
			return m[1]
		}
	}
	t.Fatal("the log names no port for tickets")
	return ""
}

// nowhere() checks that no secret or token is in the files and answers of the servers.
func nowhere(t *testing.T, c *cluster.Ensemble, dirs ...string) {
	seen := 0
	look := func(where string, b []byte) {
		seen++
		for _, mark := range []string{secretMark, tokenMark} {
			expect.That(t, !bytes.Contains(b, []byte(mark)), "%s has a secret", where)
		}
	}
	for _, s := range c.Servers {
		dirs = append(dirs, s.Dir)
		for _, page := range []string{"/", "/commands/dump", "/commands/connections", "/locks",
			"/locks/innocent", "/locks/attack", "/sessions", "/tree/innocent", "/top", "/metrics", "/health",
			"/overview", "/wait-graph",
			"/debug/trace?seconds=1", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline"} {
			resp := must.Get(http.Get("http://" + s.Admin + page))(t)
			b := must.Get(io.ReadAll(resp.Body))(t)
			resp.Body.Close()
			look(page, b)
		}
	}
	for _, dir := range dirs {
		must.OK(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				b, _ := os.ReadFile(path) // a segment of the log may be gone
				look(path, b)
			}
			return nil
		}))
	}
	expect.That(t, seen > 60, "%d places were looked at", seen)
}
