package client_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/zlocktest"
)

// referee judges the locks of several clients from outside. It knows the leases that the clients return, the
// nodes that the test removes and the sessions that the test ends.
type referee struct {
	t *testing.T

	mu      sync.Mutex
	paths   map[string]*ledger
	removed map[string]bool // nodes that the test has removed; true if the node was a waiter's
	forced  map[int]int     // how often the locks of a client were taken away by force
	forcing map[int]bool    // clients whose locks the test is taking away now
	grants  int
}

// ledger is what the referee knows of one path.
type ledger struct {
	claims []*claim
	top    fence.Token // the largest token of an exclusive hold
}

// claim is a lease from its grant to the beginning of its release.
type claim struct {
	client int
	path   string
	lease  *client.Lease
	mode   fence.Mode
	n, of  int // how many permits the lease has, and the number of permits of the semaphore
	outer  *claim
	root   *claim // the outermost lease of the same hold
	set    *claim // the set to which this lock belongs
	token  fence.Token
	locks  []*claim // the locks of a set
	// forced says that the test took the lock away, so the lease may not know yet that it is lost.
	forced bool
}

func newReferee(t *testing.T) *referee {
	return &referee{t: t, paths: map[string]*ledger{}, removed: map[string]bool{},
		forced: map[int]int{}, forcing: map[int]bool{}}
}

// start() is called before a call of a client. granted() needs its result.
func (r *referee) start(client int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forced[client]
}

// holds() reports whether the claim is certainly held at this moment. r.mu is held.
func (c *claim) holds() bool { return !c.forced && c.lease.Valid() }

// sharesHold reports whether both leases are of one hold, because one is nested in the other.
func (c *claim) sharesHold(o *claim) bool {
	return slices.ContainsFunc(c.lease.Nodes(), func(n string) bool {
		return slices.Contains(o.lease.Nodes(), n)
	})
}

// enough() reports whether there were at least so many grants.
func (r *referee) enough(grants int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grants >= grants
}

// granted() judges a grant. For a set, it judges the grant of each lock.
func (r *referee) granted(c *claim, before int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grants++
	c.token = c.lease.Token()
	r.grant(c, before)
	if c.path != "set" {
		return
	}
	for _, s := range c.lease.Sequencers() {
		one := &claim{client: c.client, path: s.Path, lease: c.lease, mode: s.Mode, token: s.Token, set: c}
		r.grant(one, before)
		c.locks = append(c.locks, one)
	}
}

func (r *referee) grant(c *claim, before int) {
	l := r.paths[c.path]
	if l == nil {
		l = &ledger{}
		r.paths[c.path] = l
	}
	c.forced = before != r.forced[c.client] || r.forcing[c.client]
	for _, node := range c.lease.Nodes() {
		waited, gone := r.removed[node]
		expect.That(r.t, !waited || !c.lease.Valid(),
			"%s: %s is granted, and was removed while it waited", c.path, node)
		c.forced = c.forced || gone
	}
	c.root = c
	if c.set != nil {
		c.root, c.forced = c.set.root, c.forced || c.set.forced
	}
	nested := false
	for o := c.outer; o != nil && !nested; o = o.outer {
		if nested = c.sharesHold(o); nested {
			c.root, c.forced = o.root, c.forced || o.forced
		}
	}
	switch {
	case c.forced, nested, !c.lease.Valid():
	case c.mode != fence.Permit && c.token <= l.top:
		r.t.Errorf("%s: %v with token %d after an exclusive %d", c.path, c.mode, c.token, l.top)
	case c.mode == fence.Exclusive:
		l.top = c.token
	}
	l.claims = append(l.claims, c)
	r.judge(l, c)
}

// judge() compares a claim with all other claims of its path. r.mu is held.
func (r *referee) judge(l *ledger, c *claim) {
	permits := 0
	for _, o := range l.claims {
		if !o.holds() {
			continue
		}
		if o.mode == fence.Permit {
			permits += o.n
			if o != c && c.mode == fence.Permit && c.holds() {
				r.numbers(c, o)
			}
		}
		if o == c || o.mode == fence.Shared && c.mode == fence.Shared || o.mode == fence.Permit &&
			c.mode == fence.Permit {
			continue
		}
		if c.root == o.root && c.mode != fence.Permit && o.mode != fence.Permit {
			continue
		}
		expect.That(r.t, !c.holds() || !o.holds(), "%s: two holders: %s, and %s", c.path, c, o)
	}
	if c.of > 0 && c.holds() && permits > c.of {
		r.t.Errorf("%s: %d permits of %d", c.path, permits, c.of)
	}
}

// numbers() fails the test if two claims have a permit with the same number.
func (r *referee) numbers(a, b *claim) {
	for _, slot := range a.slots() {
		expect.That(r.t, !slices.Contains(b.slots(), slot) || !a.holds() || !b.holds(),
			"%s: two permits have the number %d: %s, and %s", a.path, slot, a, b)
	}
}

// slots() returns the numbers of the claim's permits on its path.
func (c *claim) slots() (slots []int) {
	for _, s := range c.lease.Sequencers() {
		if slot := recipe.SlotOf(recipe.Base(s.Node)); slot > 0 && s.Path == c.path {
			slots = append(slots, slot)
		}
	}
	return slots
}

func (c *claim) String() string {
	return fmt.Sprintf("%v by client %d with token %d, %s", c.mode, c.client, c.lease.Token(), c.lease.Node())
}

// released() ends a claim, before the release begins.
func (r *referee) released(c *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range append(c.locks, c) {
		l := r.paths[c.path]
		l.claims = slices.DeleteFunc(l.claims, func(o *claim) bool { return o == c })
	}
}

// hears() counts the grants of one client, and the ends of these grants. It fails the test if the end of a
// grant is reported before the grant.
func (r *referee) hears() client.Option {
	held := map[string]int{} // by path; no lock is needed, because a client reports its events one after another
	return client.WithEvents(func(ev client.Event) {
		switch ev.Kind {
		case client.EventGranted:
			held[ev.Path]++
		case client.EventLost, client.EventReleased:
			held[ev.Path]--
			expect.That(r.t, held[ev.Path] >= 0, "%s: an end is told before its grant", ev.Path)
		}
	})
}

// becomes() changes the mode of a claim. It is called before a downgrade begins and after an upgrade.
func (r *referee) becomes(c *claim, mode fence.Mode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.paths[c.path]
	if c.mode = mode; mode == fence.Exclusive {
		if c.holds() {
			l.top = max(l.top, c.lease.Token())
		}
		r.judge(l, c)
	}
}

// remove() lets del() remove a node by force. If another contender holds the lock exclusively at that time,
// the node was a waiter's, and its owner can never get the lock with that node.
func (r *referee) remove(path, node string, del func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := false
	l := r.paths[path]
	if l == nil {
		return
	}
	for _, c := range l.claims {
		if slices.Contains(c.lease.Nodes(), node) {
			c.forced, own = true, true
		}
	}
	if r.removed[node] = false; del() != nil {
		return
	}
	for _, c := range l.claims {
		if !own && c.mode == fence.Exclusive && c.holds() && !strings.Contains(node, "/q-") {
			r.removed[node] = true
		}
	}
}

// force() runs do(), which takes the locks of these clients away. Locks that these clients get while do()
// runs are uncertain, too.
func (r *referee) force(do func(), clients ...int) {
	mark := func(forcing bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, n := range clients {
			r.forced[n]++
			r.forcing[n] = forcing
			for _, l := range r.paths {
				for _, c := range l.claims {
					c.forced = c.forced || c.client == n
				}
			}
		}
	}
	mark(true)
	defer mark(false)
	do()
}

// unawareAndOther returns two clients. The first client gets no event.
func unawareAndOther(t *testing.T) (s *zlocktest.Server, p *faultproxy.Proxy,
	unaware, other *client.Client) {
	t.Helper()
	s = zlocktest.Start(t)
	p = must.Get(faultproxy.New(s.Addr))(t)
	t.Cleanup(func() { p.Close() })
	p.Add(faultproxy.Rule{Kind: faultproxy.Event, Do: faultproxy.Drop})
	p.Record()
	dial := func(addr string) *client.Client {
		c := must.Get(client.Dial(t.Context(), addr))(t)
		t.Cleanup(func() { c.Close(context.Background()) })
		return c
	}
	return s, p, dial(p.Addr()), dial(s.Addr)
}

// If a lease was taken away by force and its client does not know it yet, the referee trusts no lease that is
// nested in the lost one.
func TestRefereeDoesNotTrustWhatIsNestedInALostLease(t *testing.T) {
	t.Parallel()
	s, p, unaware, other := unawareAndOther(t)
	ref := newReferee(t)
	take := func(ctx context.Context, id int, c *client.Client, outer *claim) *claim {
		before := ref.start(id)
		l := must.Get(c.Mutex("/m", client.WithReentrant()).Lock(ctx))(t)
		held := &claim{client: id, path: "/m", lease: l, mode: fence.Exclusive, outer: outer}
		ref.granted(held, before)
		return held
	}
	outer := take(t.Context(), 0, unaware, nil)
	// When the client begins to watch its own node, it also reads the node. Wait for this read: if it came
	// later, it would show the client that the node is gone.
	must.Await(t, "the client does not watch its node", time.Minute, func() bool {
		return p.Count(func(f faultproxy.Frame) bool {
			return f.Kind == faultproxy.Reply && f.Path == outer.lease.Node()
		}) > 0
	})
	ref.force(func() { must.OK(t, s.Connect().Delete(outer.lease.Node(), -1)) }, 0)
	take(outer.lease.Context(), 0, unaware, outer)
	take(t.Context(), 1, other, nil)
}

// The referee does not trust a lease that is granted while force() runs, for example during a restore.
func TestRefereeDoesNotTrustWhatIsGrantedDuringAForce(t *testing.T) {
	t.Parallel()
	s, _, unaware, other := unawareAndOther(t)
	ref := newReferee(t)
	ref.force(func() {
		for id, c := range []*client.Client{unaware, other} {
			before := ref.start(id)
			l := must.Get(c.Mutex("/m").Lock(t.Context()))(t)
			ref.granted(&claim{client: id, path: "/m", lease: l, mode: fence.Exclusive}, before)
			if c == unaware {
				must.OK(t, s.Connect().Delete(l.Node(), -1))
			}
		}
	}, 0)
}
