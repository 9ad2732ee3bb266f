package tickets_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var turnsOfK9 = flag.Int("tickets.turns", 60, "tickets of each mode that TestK9NoTwoTicketsHoldAtOnce grants")

// holders records which tickets hold a lock at the moment, according to the answers that their callers got.
type holders struct {
	mu              sync.Mutex
	limit           int // how many permits the semaphore has
	readers, alone  int
	slots           map[int]bool
	tokens          map[string]bool
	lastOne, lastOf int64 // the highest token of an exclusive holder, and of any holder
}

// enter() records that a ticket holds the lock, and returns the rules that this hold breaks.
func (h *holders) enter(mode string, now int64, a reply) (wrong []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	no := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if h.tokens[a.Token] {
		no("token %s is given twice", a.Token)
	}
	h.tokens[a.Token] = true
	before := h.lastOne // a reader's token must be above those of all writers, and a writer's token above all
	switch mode {
	case "exclusive":
		before = h.lastOf
		if h.alone++; h.alone > 1 || h.readers > 0 {
			no("%d tickets hold alone, and %d as readers", h.alone, h.readers)
		}
		h.lastOne = now
	case "shared":
		if h.readers++; h.alone > 0 {
			no("a reader holds beside %d", h.alone)
		}
	case "permit":
		if h.readers++; h.readers > h.limit || len(a.Slots) != 1 {
			no("%d permits of %d are held, numbers %v", h.readers, h.limit, a.Slots)
		}
		for _, slot := range a.Slots {
			if h.slots[slot] || slot > h.limit {
				no("number %d is given to two, or is beyond %d", slot, h.limit)
			}
			h.slots[slot] = true
		}
	}
	if h.lastOf = max(h.lastOf, now); now <= before {
		no("token %d after %d", now, before)
	}
	return wrong
}

func (h *holders) leave(mode string, a reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if mode == "exclusive" {
		h.alone--
		return
	}
	h.readers--
	for _, slot := range a.Slots {
		delete(h.slots, slot)
	}
}

// TestK9 passes a lock around three servers whose leader dies again and again. Each request is sent twice,
// and each tenth answer is lost. No two tickets that exclude each other hold the lock at once, tokens rise,
// and soon afterwards no ticket and no node is left.
func TestK9NoTwoTicketsHoldAtOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers whose leader is stopped")
	}
	tokens := bearers(t)
	c := startThree(t, func(_ int, o *server.Options) { o.TicketTokens = tokens })
	for at, name := range []string{"exclusive", "readers and writers", "permits"} {
		t.Run(name, func(t *testing.T) {
			turnsOf(t, c, at**turnsOfK9, func(turn int) (mode, query string) {
				switch {
				case name == "permits":
					return "permit", "mode=permit&limit=3"
				case name == "exclusive" || turn%4 == 0:
					return "exclusive", "mode=exclusive"
				}
				return "shared", "mode=shared"
			})
		})
	}
}

// While leaders die, turnsOf opens as many tickets as the flag `tickets.turns` says, and waits until each has
// held the lock. of() returns a ticket's mode.
func turnsOf(t *testing.T, c *three, first int, of func(turn int) (mode, query string)) {
	patience := 3*time.Minute + time.Duration(*turnsOfK9)*200*time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	turns := *turnsOfK9
	callers := min(turns/2, 500)
	var all sync.WaitGroup
	var grants, answers atomic.Int64
	h := &holders{limit: 3, slots: map[int]bool{}, tokens: map[string]bool{}}
	path := fmt.Sprint("/v1/locks/shared/", first)
	try := func(n int, what string) (a reply) {
		for k := 0; ctx.Err() == nil; k++ {
			at := c.addr(n + k)
			lost, stop := context.WithTimeout(ctx, time.Duration(k%5)*20*time.Millisecond)
			go func() { _, _ = ask(lost, at, n, what, bearer); stop() }() // an extra request, whose answer is lost
			a, err := ask(ctx, at, n, what, bearer)
			switch {
			case answers.Add(1)%10 == 0: // the answer is lost
			case err != nil, a.code >= 500, a.code == 429:
				time.Sleep(20 * time.Millisecond)
			case a.code == 202:
			default:
				return a
			}
		}
		return reply{}
	}
	one := func(turn int) {
		n := first + turn + 1 // the number of the ticket's secret
		mode, query := of(turn)
		a := try(n, "POST "+path+"?ttl=1m&wait=20s&"+query)
		if !a.Held {
			t.Errorf("ticket %d is not granted: %d %s", n, a.code, a.body)
			return
		}
		for _, wrong := range h.enter(mode, token(t, a), a) {
			t.Errorf("ticket %d: %s", n, wrong)
		}
		grants.Add(1)
		time.Sleep(5 * time.Millisecond)
		h.leave(mode, a)
		if over := try(n, "DELETE "+path); over.code != 204 && over.Error != "given" {
			t.Errorf("ticket %d is given back: %d %s", n, over.code, over.body)
		}
	}
	for n := range callers {
		all.Go(func() {
			for turn := n; turn < turns && !t.Failed(); turn += callers {
				one(turn)
			}
		})
	}
	eventually(t, "some are granted", func() bool { return grants.Load() > 5 || t.Failed() })
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	deaths, began := 0, time.Now()
	for going := true; going && !t.Failed(); {
		deaths += c.killLeader()
		select {
		case <-over:
			going = false
		case <-time.After(10 * time.Second):
		}
	}
	<-over
	t.Logf("%d tickets by %d callers, %d answers, %d deaths of leaders, %v", turns, callers, answers.Load(),
		deaths, time.Since(began).Round(time.Second))
	expect.Equal(t, grants.Load(), int64(turns), "grants")
	expect.Equal(t, len(h.tokens), turns, "tokens")
	eventually(t, "nothing is left", func() bool { return !slices.ContainsFunc(c.servers(), leftOver) })
}

// servers() returns the servers as they are now.
func (c *three) servers() []*server.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list[:])
}

// leftOver reports whether a server has tickets or places.
func leftOver(i *server.Instance) (some bool) {
	i.Node().View(func(st *state.State) {
		some = st.Sessions().Tickets() > 0 || st.Tree().EphemeralCount() > 0
	})
	return some
}

// TestK8EachAnswerMayBeLostInEachMode loses answers during a ticket's life, in each mode: each answer in
// turn, and then all of them. The ticket must reach the same state as without a loss. No place or permit may
// stay behind.
func TestK8EachAnswerMayBeLostInEachMode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		query   string
		holding bool // whether another ticket holds the lock at first, until this one waits
	}{
		"shared":            {"mode=shared", false},
		"permit":            {"mode=permit&limit=2", false},
		"permits":           {"mode=permit&limit=3&permits=2", false},
		"kazoo":             {"layout=kazoo", false},
		"a try":             {"queue=no", false},
		"a try of permits":  {"mode=permit&limit=2&queue=no", false},
		"exclusive, queued": {"mode=exclusive", true},
		"shared, queued":    {"mode=shared", true},
		"permit, queued":    {"mode=permit&limit=1", true},
	} {
		t.Run(name, func(t *testing.T) {
			i := start(t, nil)
			k := caller{t, i.TicketAddr()}
			steps := []string{"POST %s?ttl=20s&" + c.query, "POST %s", "POST %s?ttl=30s", "GET %s",
				"POST %s?wait=1m", "POST %s", "DELETE %s"}
			run := func(n, lost int) (states []string) {
				path := fmt.Sprintf("/v1/locks/lost/%d", n)
				other := 1000 + n
				if c.holding {
					holds := "mode=exclusive"
					if name == "permit, queued" {
						holds = c.query
					}
					k.expect(other, 201, "POST "+path+"?"+holds)
				}
				for at, step := range steps {
					what := fmt.Sprintf(step, path)
					if at == 4 && c.holding {
						k.expect(other, 204, "DELETE "+path)
					}
					if at == lost || lost == len(steps) {
						k.ask(n, what) // the answer is lost
					}
					a := k.ask(n, what)
					state := fmt.Sprint(a.code, a.Held, a.TTL, a.Slots, a.Position)
					if a.code == 201 || a.code == 200 {
						state = fmt.Sprint("held ", a.Held, a.TTL, a.Slots)
					}
					if a.code == 204 || a.code == 410 && a.Error == "given" {
						state = "given"
					}
					states = append(states, state)
				}
				return states
			}
			want := run(1, -1)
			must.Equal(t, want[len(want)-1], "given", "the last state of %v", want)
			for lost := range len(steps) + 1 {
				expect.List(t, run(2+lost, lost), want, "lost answer %d", lost)
			}
			expect.That(t, !leftOver(i), "tickets or places are left")
		})
	}
}
