package client

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	gozk "github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// slotsOf returns the numbers of a lease's permits.
func slotsOf(t *testing.T, l *Lease) []int { return must.Get(l.Slots())(t) }

// A permit has the lowest number that is free, until it is given back.
func TestSlotsOfALease(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d, ctx := dial(t), dir(t), testCtx(t)
	s := c.Semaphore(d, 4)
	one := must.Get(s.Acquire(ctx, 1))(t)
	two := must.Get(s.TryAcquire(ctx, 2))(t)
	must.List(t, slotsOf(t, one), []int{1})
	must.List(t, slotsOf(t, two), []int{2, 3})
	unlock(t, one)
	three := must.Get(s.Acquire(ctx, 2))(t)
	must.List(t, slotsOf(t, three), []int{1, 4})
	unlock(t, two)
	unlock(t, three)
	must.List(t, slotsOf(t, must.Get(c.Mutex(d+"/m").Lock(ctx))(t)), nil)

	set := must.Get(c.All(ctx, c.Semaphore(d+"/a", 2).Request(2), c.Mutex(d+"/b").Request(),
		c.Semaphore(d+"/c", 2).Request(1)))(t)
	must.List(t, slotsOf(t, set), []int{1, 2, 1})
	unlock(t, set)
}

// If the number of permits is lowered, holders keep their higher numbers, but no later permit gets such a
// number.
func TestSlotsOfALoweredLimit(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d, ctx := dial(t), dir(t), testCtx(t)
	s := c.Semaphore(d, 3)
	low, high := must.Get(s.Acquire(ctx, 2))(t), must.Get(s.Acquire(ctx, 1))(t)
	must.OK(t, s.SetPermits(ctx, 2))
	unlock(t, low)
	must.List(t, slotsOf(t, high), []int{3})
	next := must.Get(s.Acquire(ctx, 1))(t)
	must.List(t, slotsOf(t, next), []int{1})
	must.Is(t, expect.Err(s.TryAcquire(ctx, 1)), ErrNotAcquired)
}

// Slots returns an error if another permit has no number, or if the layout is kazoo's. The lease is held
// nevertheless.
func TestSlotsBesidePermitsWithoutNumbers(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d, ctx := dial(t), dir(t), testCtx(t)
	s := c.Semaphore(d, 3)
	first := must.Get(s.Acquire(ctx, 1))(t)
	other := observer(t)
	leases := recipe.Join(d, recipe.PermitsName)
	for name, node := range map[string]string{
		"Curator's":               "_c_6f1ed002-ab5c-4b1f-a0ce-75ab2e1ed1a2-lease-",
		"a release that has none": recipe.PermitName(recipe.NewID(1, 2), 0)} {
		made := must.Get(other.Create(recipe.Join(leases, node), nil, gozk.FlagEphemeral|gozk.FlagSequence,
			gozk.WorldACL(gozk.PermAll)))(t)
		for _, take := range []func() (*Lease, error){
			func() (*Lease, error) { return s.Acquire(ctx, 1) },
			func() (*Lease, error) { return s.TryAcquire(ctx, 1) },
		} {
			l := must.Get(take())(t)
			must.Is(t, expect.Err(l.Slots()), ErrNoSlots, name)
			expect.Has(t, expect.Err(l.Slots()).Error(), made)
			must.OK(t, l.Check(ctx), name)
			unlock(t, l)
		}
		must.OK(t, other.Delete(made, -1))
		l := must.Get(s.Acquire(ctx, 1))(t)
		must.List(t, slotsOf(t, l), []int{2}, name)
		unlock(t, l)
	}
	must.List(t, slotsOf(t, first), []int{1})
	kazoo := must.Get(c.Semaphore(d+"/kazoo", 3, WithLayout(LayoutKazoo)).Acquire(ctx, 1))(t)
	must.Is(t, expect.Err(kazoo.Slots()), ErrNoSlots)
}

// If several clients take permits at the same time, with Acquire and with TryAcquire, no two holders have the
// same number.
func TestSlotsOfManyClients(t *testing.T) {
	t.Parallel()
	shared(t)
	d, ctx := dir(t), testCtx(t)
	const limit = 4
	var mu sync.Mutex
	var held []int
	var all sync.WaitGroup
	rounds := 30
	if os.Getenv("ZLOCKD_CLIENT_FULL") != "" {
		rounds = 500
	}
	for n := range 6 {
		c := dial(t)
		all.Go(func() {
			s := c.Semaphore(d, limit)
			for round := range rounds {
				take := s.Acquire
				if (n+round)%2 == 0 {
					take = s.TryAcquire
				}
				l, err := take(ctx, 1+(n+round)%3/2)
				if err != nil {
					expect.Is(t, err, ErrNotAcquired)
					continue
				}
				slots, err := l.Slots()
				expect.OK(t, err)
				mu.Lock()
				for _, slot := range slots {
					expect.That(t, slot >= 1 && slot <= limit, "the number %d, want 1 to %d", slot, limit)
					expect.That(t, !slices.Contains(held, slot), "the number %d is in use: %v", slot, held)
				}
				held = append(held, slots...)
				mu.Unlock()
				mu.Lock()
				held = slices.DeleteFunc(held, func(slot int) bool { return slices.Contains(slots, slot) })
				mu.Unlock()
				expect.OK(t, l.Unlock(ctx))
			}
		})
	}
	all.Wait()
}

// If there are as many callers of TryAcquire as permits, each caller gets a permit.
func TestTriesTakeAllSlots(t *testing.T) {
	t.Parallel()
	shared(t)
	d, ctx := dir(t), testCtx(t)
	const limit = 8
	leases := make([]*Lease, limit)
	var all sync.WaitGroup
	for n := range limit {
		c := dial(t)
		all.Go(func() {
			s := c.Semaphore(d, limit)
			// ask again: another caller may be about to give its permit back
			for leases[n] == nil && ctx.Err() == nil {
				leases[n], _ = s.TryAcquire(ctx, 1)
			}
		})
	}
	all.Wait()
	var got []int
	for _, l := range leases {
		must.That(t, l != nil, "a try has no permit")
		got = append(got, slotsOf(t, l)...)
	}
	slices.Sort(got)
	must.Equal(t, fmt.Sprint(got), "[1 2 3 4 5 6 7 8]")
}
