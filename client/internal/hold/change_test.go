package hold

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Changes of mode run one after another, and a release waits for them.
func TestChangesOfAHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, l, _ := heldWith(t, Limits{})
		h.awaitChange(t.Context())
		must.That(t, !h.changes(), "a change is under way at the beginning")
		must.That(t, h.beginChange(), "a change does not begin")
		must.That(t, h.changes(), "no change is under way")
		ended, cancel := context.WithCancel(l.Context())
		cancel()
		h.awaitChange(ended)
		must.Is(t, expect.Err(h.s.Nested(ended, "/a", fence.Shared, true)), context.Canceled)
		must.Is(t, expect.Err(h.addLease(ended, fence.Shared)), ErrNotHeld)
		over := make(chan string, 3)
		go func() { h.awaitChange(t.Context()); over <- "await" }()
		go func() {
			_, err := h.addLease(l.Context(), fence.Shared)
			over <- fmt.Sprint("lease ", err)
		}()
		synctest.Wait()
		must.Equal(t, len(over), 0, "waits that are over")
		h.endChange()
		order := []string{<-over, <-over}
		slices.Sort(order)
		must.List(t, order, []string{"await", "lease <nil>"})
		must.That(t, h.beginChange(), "it is over")
		go func() { over <- fmt.Sprint("change ", h.beginChange()) }()
		synctest.Wait()
		must.Equal(t, len(over), 0, "changes at a time")
		h.lose(Removed)
		h.endChange()
		must.Equal(t, <-over, "change false")
		must.Is(t, h.overErr(), ErrLost)
		must.That(t, !h.beginChange(), "a change of a lost hold begins")
		must.That(t, !h.changes(), "a lost hold changes")
	})
}

// A release waits for a change of the mode, because only after the change does the release know the hold's
// nodes.
func TestReleaseWaitsForAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, l, left := heldWith(t, Limits{})
		must.That(t, h.beginChange(), "a change does not begin")
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		must.Is(t, l.Unlock(short), ErrReleasePending)
		must.Equal(t, left.Load(), 0, "turns passed on during the change")
		h.endChange()
		synctest.Wait()
		must.Equal(t, left.Load(), 1, "turns passed on")
	})
}

// If a write lease and the read lease nested in it are unlocked at the same time, neither unlock fails.
func TestUnlocksOfNestedLeasesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, outer, _ := heldWith(t, Limits{})
		h.g.AsReader = func(*session.Epoch, string) session.Node {
			t.Error("a hold that is over changes")
			return session.Node{}
		}
		inner := must.Get(h.addLease(outer.Context(), fence.Shared))(t)
		must.That(t, h.beginChange(), "a change does not begin") // delays both unlocks
		first := make(chan error, 1)
		go func() { first <- outer.Unlock(t.Context()) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		must.Is(t, inner.Unlock(short), ErrReleasePending)
		h.endChange()
		must.OK(t, <-first)
		must.Is(t, outer.Unlock(t.Context()), ErrNotHeld)
	})
}

// A hold that is lost while it becomes a writer is over, and leaves its new node behind only for the grace.
func TestLossDuringAChange(t *testing.T) {
	t.Parallel()
	for _, graceful := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, l, _ := heldWith(t, Limits{MaxHold: time.Hour, Grace: time.Minute})
			why, before, after := Removed, 3, 3
			if graceful {
				why, before, after = MaxHold, 0, 1
			}
			_, err := h.BecomeWriter(func() (*Writer, error) {
				h.lose(why)
				return &Writer{Node: "/a/w", Token: 9}, nil
			})
			lostFor(t, err, why)
			must.List(t, l.Nodes(), []string{"/a/w"})
			must.Equal(t, h.s.Keeper.Pending(), before, "nodes to remove")
			time.Sleep(time.Minute)
			synctest.Wait()
			must.Equal(t, h.s.Keeper.Pending(), after, "nodes to remove after the grace")
		})
	}
}

// When the last writing lease ends, the hold of a read-write lock becomes a reader's hold. The reading leases
// do not wait for that.
func TestLastWriterMakesReadersOfTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, write, left := heldWith(t, Limits{})
		h.g.AsReader = func(*session.Epoch, string) session.Node {
			return session.Node{Create: zk.Create{Path: "/a/r", Mode: zk.Ephemeral}}
		}
		second := must.Get(h.addLease(write.Context(), fence.Exclusive))(t)
		read := must.Get(h.addLease(write.Context(), fence.Shared))(t)
		must.Get(h.addLease(write.Context(), fence.Shared))(t)
		must.OK(t, second.Unlock(t.Context()))
		must.That(t, !h.changes(), "a change of mode while a lease writes")
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		must.Is(t, write.Unlock(short), ErrReleasePending)
		must.That(t, h.changes(), "no change of mode")
		must.OK(t, read.Unlock(short))
		must.Equal(t, left.Load(), 0, "turns passed on")
	})
}
