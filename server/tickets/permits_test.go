//go:build !windows

package tickets_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	locks "github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func dialLocks(t *testing.T, addr string) *locks.Client {
	c := must.Get(locks.Dial(t.Context(), addr))(t)
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// A ticket for permits gets numbers, waits in a queue, and gets the permits that become free. A request that
// cannot succeed gets an error.
func TestTheLifeOfATicketForPermits(t *testing.T) {
	t.Parallel()
	i := start(t, nil)
	c := caller{t, i.TicketAddr()}
	const sem = " /v1/locks/gpu"
	c.expect(1, 409, "POST"+sem+"?mode=permit") // no limit is stored, and the request has none
	a := c.expect(1, 201, "POST"+sem+"?mode=permit&limit=3&who=ann&ttl=60s")
	expect.Equal(t, fmt.Sprint(a.Slots), "[1]")
	expect.Equal(t, c.expect(1, 200, "POST"+sem).Token, a.Token)
	b := c.expect(2, 201, "POST"+sem+"?mode=permit&permits=2&limit=9") // the stored limit counts
	expect.Equal(t, fmt.Sprint(b.Slots), "[2 3]")
	expect.Equal(t, c.expect(9, 409, "POST"+sem+"?mode=permit&permits=4&limit=9").Error, "limit")
	expect.Equal(t, c.expect(2, 409, "POST"+sem+"?mode=permit&permits=1").Error, "path", "another number")

	q := c.expect(3, 202, "POST"+sem+"?mode=permit&permits=2")
	expect.Equal(t, q.Position, 1, "queued: position")
	expect.Equal(t, q.Of, 1, "queued")
	expect.That(t, q.Behind != nil, "queued: %s", q.body)
	expect.Equal(t, q.head.Get("ETag"), `"q-1"`)
	expect.Equal(t, c.expect(4, 202, "POST"+sem+"?mode=permit").Position, 2)
	tried := c.expect(5, 409, "POST"+sem+"?mode=permit&queue=no")
	expect.Equal(t, tried.Error, "held", "a try: error")
	expect.That(t, tried.Behind != nil, "a try: %s", tried.body)
	c.expect(5, 404, "GET"+sem)
	shown := c.expect(0, 200, "GET"+sem)
	if expect.Equal(t, len(shown.Holders), 3, "number of holders %v", shown.Holders) {
		expect.Equal(t, shown.Queued, 2, "queued")
		expect.Equal(t, shown.Limit, 3, "limit")
	}
	expect.Equal(t, fmt.Sprint(shown.Holders[0].Slot)+shown.Holders[0].User, "1ann")

	c.expect(1, 204, "DELETE"+sem)
	c.expect(3, 202, "POST"+sem) // one is free, and two are wanted
	granted := make(chan reply, 1)
	go func() {
		a, _ := ask(context.Background(), i.TicketAddr(), 3, "POST"+sem+"?wait=1m")
		granted <- a
	}()
	eventually(t, "it waits", func() bool { return waits(i) == 1 })
	c.expect(2, 204, "DELETE"+sem)
	g := <-granted
	expect.Equal(t, g.code, 200, "granted: code")
	expect.Equal(t, fmt.Sprint(g.Slots), "[1 2]", "granted: slots")
	expect.Equal(t, fmt.Sprint(c.expect(4, 200, "POST"+sem).Slots), "[3]")
	list := c.expect(0, 200, "GET /v1/tickets").Tickets
	if expect.Equal(t, len(list), 2, "length of %v", list) {
		expect.Equal(t, fmt.Sprint(list[0].Slots), "[1 2]", "slots")
	}
	for _, n := range []int{3, 4} {
		c.expect(n, 204, "DELETE"+sem)
	}
	expect.Equal(t, fmt.Sprint(c.expect(6, 201, "POST"+sem+"?mode=permit&queue=no&permits=3").Slots), "[1 2 3]")
}

// A ticket is over if another client removes its permits, or if a lock of another kind is at its path.
func TestPermitsThatCannotBeHeld(t *testing.T) {
	t.Parallel()
	i := start(t, nil)
	c := caller{t, i.TicketAddr()}
	other := client(t, i)
	c.expect(1, 201, "POST /v1/locks/s?mode=permit&permits=2&limit=2")
	permits, _, err := other.Children("/s/leases", false)
	must.OK(t, err)
	must.OK(t, other.Delete("/s/leases/"+permits[0], -1))
	expect.Equal(t, c.expect(1, 410, "POST /v1/locks/s").Error, "removed")
	permits, _, err = other.Children("/s/leases", false)
	expect.OK(t, err)
	expect.Equal(t, len(permits), 0, "permits that are left: number of permits %v", permits)

	c.expect(2, 201, "POST /v1/locks/m")
	expect.Equal(t, c.expect(3, 409, "POST /v1/locks/m?mode=permit&limit=2").Error, "mixed")
	c.expect(4, 201, "POST /v1/locks/p?mode=permit&limit=2")
	expect.Equal(t, c.expect(5, 409, "POST /v1/locks/p").Error, "mixed")

	c.expect(6, 201, "POST /v1/locks/n?mode=permit&limit=2")
	c.expect(7, 202, "POST /v1/locks/n?mode=permit&permits=2")
	must.Get(other.SetData("/n", []byte(`{"zl":1,"limit":1}`), -1))(t)
	expect.Equal(t, c.expect(7, 409, "POST /v1/locks/n").Error, "limit", "fewer permits than it waits for")
	c.expect(6, 204, "DELETE /v1/locks/n")
	expect.Equal(t, len(c.expect(0, 200, "GET /v1/tickets").Tickets), 2)
}

// While there is a permit without a number, such as a permit of Curator, no ticket gets numbers.
func TestTicketsBesidePermitsWithoutNumbers(t *testing.T) {
	t.Parallel()
	i := start(t, nil)
	c := caller{t, i.TicketAddr()}
	other := client(t, i)
	c.expect(1, 201, "POST /v1/locks/s?mode=permit&limit=3")
	curator := must.Get(other.Create("/s/leases/_c_6f1ed002-ab5c-4b1f-a0ce-75ab2e1ed1a2-lease-", nil,
		jute.FlagEphemeralSequential))(t)
	expect.Equal(t, fmt.Sprint(c.expect(1, 200, "POST /v1/locks/s").Slots), "[1]", "of the earlier permit")
	a := c.expect(2, 201, "POST /v1/locks/s?mode=permit")
	expect.That(t, a.Held, "beside Curator's it does not hold: %s", a.body)
	expect.List(t, a.Slots, nil, "numbers of the permits")
	expect.That(t, a.NoSlots != "", "no reason why the permits have no numbers: %s", a.body)
	c.expect(3, 202, "POST /v1/locks/s?mode=permit")
	must.OK(t, other.Delete(curator, -1))
	expect.Equal(t, fmt.Sprint(c.expect(2, 200, "POST /v1/locks/s").Slots), "[2]", "when it is gone")
	expect.Equal(t, fmt.Sprint(c.expect(3, 200, "POST /v1/locks/s").Slots), "[3]")
}

var slotJobs = flag.Int("slots.jobs", 300, "jobs of TestK11NoTwoHaveOneSlot")

// K11: jobs take permits of one semaphore through tickets and through package client. Some wait in the queue,
// and others only try. Some callers vanish with their permits, and the test ends their sessions. No two
// callers have the same number at one time.
func TestK11NoTwoHaveOneSlot(t *testing.T) {
	t.Parallel()
	const limit, callers = 8, 16
	i := start(t, nil)
	var claims sync.Mutex
	claimed := map[int]bool{}
	hold := func(slots []int) (free func()) {
		claims.Lock()
		defer claims.Unlock()
		for _, slot := range slots {
			expect.That(t, !claimed[slot], "two callers have the number %d", slot)
			expect.That(t, slot >= 1 && slot <= limit, "a caller has the number %d of %d", slot, limit)
			claimed[slot] = true
		}
		return func() {
			claims.Lock()
			defer claims.Unlock()
			for _, slot := range slots {
				delete(claimed, slot)
			}
		}
	}
	var mu sync.Mutex
	done, killed, next := 0, 0, 0
	job := func() int {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next
	}
	count := func(kill bool) {
		mu.Lock()
		defer mu.Unlock()
		if done++; kill {
			killed++
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(*slotJobs)*100*time.Millisecond)
	defer cancel()
	byTicket := func(n int) {
		permits := 1 + n%5/4
		what := fmt.Sprintf("POST /v1/locks/gpu?mode=permit&limit=%d&permits=%d&wait=5s&ttl=1m", limit, permits)
		if n%7 == 0 {
			what += "&queue=no"
		}
		var a reply
		for err := error(nil); !a.Held && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if a, err = ask(ctx, i.TicketAddr(), n, what); err != nil || a.code >= 500 || a.code == 429 {
				continue
			}
			if a.code != 409 && a.code >= 400 {
				t.Errorf("job %d: %d %s", n, a.code, a.body)
				return
			}
		}
		must.Equal(t, len(a.Slots), permits, "numbers of job %d", n)
		free := hold(a.Slots)
		time.Sleep(time.Millisecond)
		free()
		for a.code != 204 && ctx.Err() == nil {
			a, _ = ask(ctx, i.TicketAddr(), n, "DELETE /v1/locks/gpu")
			if a.code == 410 {
				break
			}
		}
		count(false)
	}
	byClient := func(c *locks.Client, n int) {
		s := c.Semaphore("/gpu", limit)
		permits := 1 + n%5/4
		var l *locks.Lease
		for l == nil && ctx.Err() == nil {
			take := s.Acquire
			if n%3 == 0 {
				take = s.TryAcquire
			}
			l, _ = take(ctx, permits)
		}
		if l == nil {
			return
		}
		slots := must.Get(l.Slots())(t)
		must.Equal(t, len(slots), permits, "numbers of job %d", n)
		free := hold(slots)
		time.Sleep(time.Millisecond)
		free()
		if n%10 == 0 { // the job is killed: its session ends, and so do its permits
			c.Close(context.Background())
		} else {
			expect.OK(t, l.Unlock(ctx))
		}
		count(n%10 == 0)
	}
	var all sync.WaitGroup
	for at := range callers {
		all.Go(func() {
			var c *locks.Client
			for n := job(); n <= *slotJobs && !t.Failed(); n = job() {
				if at%2 == 0 {
					byTicket(n)
					continue
				}
				if c == nil {
					c = must.Get(locks.Dial(ctx, i.ClientAddr()))(t)
				}
				byClient(c, n)
				if n%10 == 0 {
					c = nil
				}
			}
			if c != nil {
				c.Close(context.Background())
			}
		})
	}
	all.Wait()
	expect.Equal(t, done, *slotJobs, "jobs")
	t.Logf("%d jobs, %d of them killed", done, killed)
	eventually(t, "all permits are free", func() bool {
		s := dialLocks(t, i.ClientAddr()).Semaphore("/gpu", 0)
		l, err := s.TryAcquire(ctx, limit)
		if err != nil {
			return false
		}
		slots := must.Get(l.Slots())(t)
		slices.Sort(slots)
		expect.Equal(t, fmt.Sprint(slots), "[1 2 3 4 5 6 7 8]")
		return l.Unlock(ctx) == nil
	})
}
