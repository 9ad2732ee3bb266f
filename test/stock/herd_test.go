package stock

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/zlocktest"
)

// contender is a client in the queue of a shared lock. The node of a reader is named HOST-R-n; a reader waits
// for all writers before it. The node of a writer is named HOST-W-n; a writer waits for all contenders before
// it.
type contender struct {
	*zk.Conn
	node  string
	seen  zk.Counters
	watch *zk.Watch // nil: the contender holds the lock
}

func number(node string) string { return node[strings.LastIndexByte(node, '-')+1:] }
func writes(node string) bool   { return strings.Contains(node, "-W-") }

// before() returns the nodes that keep a contender waiting, in order.
func before(children []string, node string) (list []string) {
	for _, c := range children {
		if number(c) < number(node) && (writes(node) || writes(c)) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b string) int { return strings.Compare(number(a), number(b)) })
	return list
}

// herd is the shared lock in its simplest form: a waiter watches the directory, and reads it again at every
// change.
func herd(t *testing.T, c *contender) {
	children, _, err := c.Children(t.Context(), "/shared")
	if err == nil && len(before(children, c.node)) > 0 {
		children, _, c.watch, err = c.ChildrenW(t.Context(), "/shared")
	}
	must.OK(t, err)
	if len(before(children, c.node)) == 0 {
		c.watch = nil
	}
}

// orderly() is the shared lock in its better form: a waiter watches the last of
// the nodes that keep it waiting.
func orderly(t *testing.T, c *contender) {
	for {
		children, _ := must.Get2(c.Children(t.Context(), "/shared"))(t)
		ahead := before(children, c.node)
		if c.watch = nil; len(ahead) == 0 {
			return
		}
		st, watch := must.Get2(c.ExistsW(t.Context(), "/shared/"+ahead[len(ahead)-1]))(t)
		if st != nil { // otherwise the node has just gone: read again
			c.watch = watch
			return
		}
	}
}

// run() puts one contender for each letter of `modes`, R for a reader or W for a writer, into a queue. Then
// it lets each contender hold the lock in its turn. It returns how many notifications all contenders got.
func run(t *testing.T, look func(*testing.T, *contender), modes string) (events uint64) {
	s := zlocktest.Start(t)
	var queue []*contender
	for i, mode := range modes {
		c := new(contender)
		var err error
		c.Conn = must.Get(zk.Dial(t.Context(), s.Addr, zk.Options{Counters: &c.seen, Timeout: time.Minute}))(t)
		defer c.Close(context.Background())
		if i == 0 {
			must.Get(c.Create(t.Context(), zk.Create{Path: "/shared"}))(t)
		}
		made, err := c.Create(t.Context(), zk.Create{Path: fmt.Sprintf("/shared/host%d-%c-", i, mode),
			Mode: zk.EphemeralSequential})
		must.OK(t, err)
		c.node = strings.TrimPrefix(made.Path, "/shared/")
		queue = append(queue, c)
	}
	everybody := slices.Clone(queue)
	for _, c := range queue {
		look(t, c)
	}
	for len(queue) > 0 {
		held := queue[0]
		must.That(t, held.watch == nil, "%s is the first and waits", held.node)
		queue = queue[1:]
		for _, c := range queue {
			if c.watch == nil && (writes(held.node) || writes(c.node)) {
				t.Fatalf("%s and %s hold the lock together", held.node, c.node)
			}
		}
		must.OK(t, held.Delete(t.Context(), "/shared/"+held.node, -1))
		for _, c := range queue {
			// If a waiter has no event when Sync returns, it gets none for this release, because events come
			// before the answer to a later request.
			must.OK(t, c.Sync(t.Context(), "/shared"))
			if c.watch == nil {
				continue
			}
			select {
			case <-c.watch.Fired():
				look(t, c)
			default:
			}
		}
	}
	for _, c := range everybody {
		events += c.seen.Events.Load()
	}
	return events
}

// In `herd`, each release wakes all waiters: n writers get n(n-1)/2 notifications. In `orderly`, each release
// wakes one waiter: n-1 notifications. With readers among the writers, `herd` still gets several times as
// many.
func TestHerdAndHerdFreeSharedLocks(t *testing.T) {
	beside(t)
	for _, n := range []uint64{5, 10, 20} {
		writers := strings.Repeat("W", int(n))
		got, want := run(t, herd, writers), n*(n-1)/2
		expect.Equal(t, got, want, "herd of %d writers: %d notifications", n, got)
		got, want = run(t, orderly, writers), n-1
		expect.Equal(t, got, want, "%d writers, each watching one node: %d notifications", n, got)
	}
	const mixed = "RRWRRWWRRRWRWR"
	herded, one := run(t, herd, mixed), run(t, orderly, mixed)
	expect.That(t, one <= uint64(len(mixed)) && herded >= 3*one,
		"readers and writers: %d notifications in a herd, %d without", herded, one)
	t.Logf("%s: %d notifications in a herd, %d without", mixed, herded, one)
}

// beside() runs a test in parallel with other tests that start their own servers. If all tests share given
// servers, the test does not run in parallel.
func beside(t *testing.T) {
	t.Helper()
	if os.Getenv("ZLOCKD_STOCK_SERVERS") == "" {
		t.Parallel()
	}
}
