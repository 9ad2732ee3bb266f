package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	czk "github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// The tests of this file check that other programs see the effect of an option.

func contentOf(t *testing.T, o *zk.Conn, node string) ([]byte, *zk.Stat) {
	t.Helper()
	b, st := must.Get2(o.Get(node))(t)
	return b, st
}

func TestClientNameIsInTheNode(t *testing.T) {
	t.Parallel()
	shared(t)
	o := observer(t)
	l := lock(t, dial(t, WithName("reports-7")).Mutex(dir(t)).Lock)
	b, _ := contentOf(t, o, l.Node())
	owner, ok := recipe.ParseOwner(b)
	expect.That(t, ok, "no record: %s", b)
	expect.Equal(t, owner.Cmd, "reports-7")
}

// The data of a candidate's node is its value. An owner record follows only if the wait graph needs the task
// and no other library reads the whole data.
func TestValueOfACandidateStaysReadable(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o := dial(t), observer(t)
	for name, campaign := range map[string]struct {
		task   string
		layout Layout
		record bool
	}{"no task": {}, "task": {"deploy", LayoutCurator, true}, "latch": {"deploy", LayoutLatch, false}, "kazoo": {
		"deploy", LayoutKazoo, false}} {
		t.Run(name, func(t *testing.T) {
			d := dir(t)
			el := c.Election(d, WithLayout(campaign.layout))
			l := must.Get(el.Campaign(Task(testCtx(t), campaign.task), []byte(`{"at":"mine"}`)))(t)
			for _, value := range []string{`{"at":"mine"}`, "", "new\x00value"} {
				if value != `{"at":"mine"}` {
					must.OK(t, l.Publish(testCtx(t), []byte(value)))
				}
				b, _ := contentOf(t, o, l.Node())
				owner, ok := recipe.ParseOwner(b)
				expect.Equal(t, ok, campaign.record, "%s: a record in %q", name, b)
				expect.That(t, bytes.HasPrefix(b, []byte(value)), "%s: %q has no value", name, b)
				if ok {
					expect.Equal(t, owner.Task, "deploy", "%s", name)
				} else {
					expect.Equal(t, string(b), value, "%s", name)
				}
				leader := must.Get(el.Leader(testCtx(t)))(t)
				expect.Equal(t, string(leader.Value), value, "%s: the leader is %q", name, leader.Value)
			}
			if err := c.Inspector().Revoke(testCtx(t), d, recipe.Base(l.Node()), recipe.Revocation{
				By: "operator"}); campaign.layout != LayoutKazoo || err == nil {
				soon(t, "the wish", l.Asked())
				if leader := must.Get(el.Leader(testCtx(t)))(t); string(leader.Value) != "new\x00value" {
					t.Errorf("%s: the leader that is asked to leave is %q", name, leader.Value)
				}
			}
			if q := must.Get(c.Inspector().Inspect(testCtx(t), d))(t); campaign.record &&
				(q.Holders[0].Owner == nil || q.Holders[0].Data != "new\x00value") {
				t.Errorf("%s: shown as %+v", name, q.Holders[0])
			}
			unlock(t, l)
		})
	}
}

func TestLatchNamesItsNodesAsCuratorDoes(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	for _, test := range []struct {
		opts []Option
		want string
	}{{nil, "-lock-"}, {[]Option{WithLayout(LayoutLatch)}, "-latch-"}} {
		l := must.Get(c.Election(d, test.opts...).Campaign(testCtx(t), []byte("me")))(t)
		n := names(t, o, d)
		expect.Equal(t, len(n), 1, "nodes %v", n)
		expect.Has(t, strings.Join(n, " "), test.want)
		unlock(t, l)
		queued(t, o, d, 0)
	}
}

func TestTLSIsSpoken(t *testing.T) {
	t.Parallel()
	leakCheck(t)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	first := make(chan byte, 1)
	go func() {
		if conn, err := l.Accept(); err == nil {
			var b [1]byte
			_, _ = io.ReadFull(conn, b[:])
			conn.Close()
			first <- b[0]
		}
	}()
	ctx, cancel := context.WithCancel(testCtx(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := Dial(ctx, l.Addr().String(), WithTLS(&tls.Config{InsecureSkipVerify: true})); err == nil {
			c.Close(ctx)
			t.Error("connected to nobody")
		}
	}()
	expect.Equal(t, soon(t, "something from the client", first), 0x16, "the first byte")
	cancel()
	<-done
}

// The token of a permit is the czxid of its node, so it is larger than the tokens of earlier permits.
func TestTokenOfAPermitIsTheBirthOfItsNode(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o := dial(t), observer(t)
	for _, layout := range []Layout{LayoutCurator, LayoutKazoo} {
		s := c.Semaphore(dir(t), 3, WithLayout(layout))
		last := fence.Token(0)
		for _, n := range []int{1, 2} {
			l := must.Get(s.Acquire(testCtx(t), n))(t)
			_, st := contentOf(t, o, l.Node())
			expect.Equal(t, l.Token(), fence.Token(st.Czxid), "%v, %d permits: token", layout, n)
			expect.That(t, l.Token() > last, "%v, %d permits: token %d after %d", layout, n, l.Token(), last)
			last = l.Token()
		}
	}
}

// Under the writers' policy a reader waits for every writer, in any order of arrival.
func TestWritersPolicyLetsNoReaderPass(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d, ctx := observer(t), dir(t), testCtx(t)
	m := func() *RWMutex { return dial(t).RWMutex(d, WithPolicy(PolicyWriter), WithOwnPlace()) }
	first := lock(t, m().RLock)
	w1 := start(ctx, m().Lock)
	queued(t, o, d, 2)
	if l, err := m().TryRLock(ctx); err == nil {
		unlock(t, l)
		t.Fatal("a reader passed a writer that waits")
	}
	r := start(ctx, m().RLock) // in the queue after the first writer and before the second
	queued(t, o, d, 3)
	w2 := start(ctx, m().Lock)
	queued(t, o, d, 4)
	unlock(t, first)
	l1 := w1.wait(t)
	unlock(t, l1)
	l2 := w2.wait(t)
	expect.That(t, r.pending(), "the reader passed the second writer")
	unlock(t, l2)
	l := r.wait(t)
	expect.That(t, l2.Token() > l1.Token(), "token %d after %d", l2.Token(), l1.Token())
	expect.That(t, l.Token() > l2.Token(), "the reader's token %d after %d", l.Token(), l2.Token())
}

// The policies differ only in one point: whether a reader waits for a queued writer that has not closed the
// lock to readers yet.
func TestPoliciesOrderReadersAndQueuedWriters(t *testing.T) {
	t.Parallel()
	reader, writer := newNodeID(1), newNodeID(2)
	q := func(id recipe.ID, kind recipe.PolicyRole, seq int32) recipe.PolicyNode {
		return recipe.PolicyNode{ID: id, Kind: kind, Seq: seq}
	}
	for _, test := range []struct {
		policy      recipe.Policy
		readerFirst bool
		new, queued turns.Do
	}{
		{PolicyWriter, true, turns.Enqueue, turns.Wait},
		{PolicyWriter, false, turns.Enqueue, turns.Wait},
		{PolicyFair, true, turns.Enqueue, turns.Grant},
		{PolicyFair, false, turns.Enqueue, turns.Wait},
		{PolicyReader, true, turns.Grant, turns.Grant},
		{PolicyReader, false, turns.Grant, turns.Grant},
	} {
		t.Run(fmt.Sprintf("%v, reader first %v", test.policy, test.readerFirst), func(t *testing.T) {
			w := q(writer, recipe.QueueWrite, 5)
			r := q(reader, recipe.QueueRead, 6)
			if test.readerFirst {
				r.Seq = 4
			}
			v := &turns.PolicyView{Policy: test.policy, Nodes: []recipe.PolicyNode{w}}
			expect.Equal(t, turns.DecideRead(v, reader, false).Do, test.new,
				"%v: a reader that comes now", test.policy)
			v.Nodes = append(v.Nodes, r)
			step := turns.DecideRead(v, reader, true)
			what := fmt.Sprintf("%v, reader first %v: a queued reader", test.policy, test.readerFirst)
			expect.Equal(t, step.Do, test.queued, "%s", what)
			if step.Do == turns.Wait {
				expect.Equal(t, step.On, w, "%s waits for", what)
			}
		})
	}
}

// A program that follows the state hears of every loss, whether the client's clock or the server reports it.
func TestStateTellsOfTheLoss(t *testing.T) {
	t.Parallel()
	shared(t)
	for name, lose := range map[string]func(*testClock, *faultproxy.Proxy) error{
		"deadline": func(c *testClock, _ *faultproxy.Proxy) error { c.move(time.Hour, 0); return nil },
		"expired":  func(_ *testClock, p *faultproxy.Proxy) error { return p.ExpireSession() },
	} {
		t.Run(name, func(t *testing.T) {
			clock := newTestClock()
			var mu sync.Mutex
			var told []State
			c, p := proxied(t, withClock(clock), on(EventState, func(ev Event) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, ev.To)
			}))
			l := lock(t, c.Mutex(dir(t)).Lock)
			mu.Lock()
			told = nil
			mu.Unlock()
			must.OK(t, lose(clock, p))
			soon(t, "the loss", l.Lost())
			eventually(t, "lost, and ready again", func() bool {
				mu.Lock()
				defer mu.Unlock()
				lost := false
				for _, s := range told {
					lost = lost || s == StateLost
				}
				return lost && told[len(told)-1] == StateReady
			})
		})
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]Option{
		"no timeout": WithSessionTimeout(0), "negative margin": WithMargin(-1),
	} {
		t.Run(name, func(t *testing.T) {
			expect.Fails(t, expect.Err(clientOptions([]Option{opt})), "%s was taken", name)
		})
	}
}

func TestPathsThatAreNoLocks(t *testing.T) {
	t.Parallel()
	shared(t)
	c, ctx := dial(t), testCtx(t)
	for path, why := range map[string]string{
		"": "is not absolute", "a/b": "is not absolute", "/": "is the root", "/a/": "is not canonical",
		"/a//b": "is not canonical", "/a/../b": "is not canonical", "/a\x00b": "has a zero byte",
	} {
		for name, err := range map[string]error{
			"lock":       errOf(c.Mutex(path).Lock(ctx)),
			"inspection": errOf(c.Inspector().Inspect(ctx, path)), "set": errOf(c.All(ctx,
				c.Mutex("/t/a").Request(), c.Mutex(path).Request())),
		} {
			must.Is(t, err, ErrInvalid, "%s of %q", name, path)
			expect.Has(t, err.Error(), why, "%s of %q", name, path)
		}
	}
	must.Is(t, c.Inspector().Walk(ctx, "a", -1, func(*recipe.Queue) error { return nil }), ErrInvalid)
}

// A set that cannot be taken takes none of its locks.
func TestSetsThatAreRefused(t *testing.T) {
	t.Parallel()
	shared(t)
	c, other, o, d := dial(t), dial(t), observer(t), dir(t)
	a, b := c.Mutex(d+"/a").Request(), c.Mutex(d+"/b").Request()
	foreign := other.Mutex(d + "/c").Request()
	for name, set := range map[string][]Request{
		"none": nil, "of another client": {foreign}, "one of another client": {a, foreign},
		"one twice": {a, b, a}, "a negative wait": {a, c.Mutex(d+"/d", WithWait(-1)).Request()},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Is(t, errOf(c.All(testCtx(t), set...)), ErrInvalid, "%s", name)
			expect.Is(t, errOf(c.TryAll(testCtx(t), set...)), ErrInvalid, "%s", name)
			expect.List(t, names(t, o, d), nil, "%s: made", name)
		})
	}
}

// The client refuses an option of the session that is given to a lock, and a layout that the kind of lock
// does not have.
func TestMisplacedOptionsAreRefused(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d := dial(t), dir(t)
	for name, refused := range map[string]struct {
		opt  Option
		want error
	}{
		"session timeout": {WithSessionTimeout(time.Minute), ErrInvalid},
		"latch":           {WithLayout(LayoutLatch), ErrUnsupported},
		"policy":          {WithPolicy(PolicyFair), ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Is(t, expect.Err(c.Mutex(d, refused.opt).Lock(testCtx(t))), refused.want, "%s", name)
			expect.Is(t, expect.Err(c.Mutex(d).Lock(testCtx(t), refused.opt)), refused.want,
				"%s, of a call", name)
		})
	}
	l := lock(t, dial(t, WithReason("of the client")).Mutex(d).Lock)
	q := must.Get(c.Inspector().Inspect(testCtx(t), d))(t)
	must.Equal(t, len(q.Holders), 1, "holders")
	expect.Equal(t, q.Holders[0].Owner.Reason, "of the client", "the reason given to Dial")
	unlock(t, l)
}

// The text of an error begins with the prefix of the package, names the lock's path, and has the
// prefix of each package once.
func TestErrorsNameThePathAndEachPackageOnce(t *testing.T) {
	t.Parallel()
	shared(t)
	c, other, ctx, d := dial(t), dial(t), testCtx(t), dir(t)
	held := lock(t, c.Mutex(d+"/held").Lock)
	write := lock(t, c.RWMutex(d+"/rw").Lock)
	mine := held.Context()
	failure := errors.New("client: a failure of the program's own")
	refused := func(_ any, err error) error { return err }
	gone := lock(t, c.Mutex(d+"/gone").Lock)
	must.OK(t, other.Inspector().Break(ctx, d+"/gone", recipe.Base(gone.Node()), gone.Token()))
	soon(t, "the loss", gone.Lost())
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	for path, e := range map[string]struct {
		err  error
		want error
	}{
		"/held try":      {refused(other.Mutex(d + "/held").TryLock(ctx)), ErrNotAcquired},
		"/held wait":     {refused(other.Mutex(d+"/held").Lock(ctx, WithWait(time.Millisecond))), ErrNotAcquired},
		"/held late":     {refused(other.Mutex(d + "/held").Lock(short)), context.DeadlineExceeded},
		"/held twice":    {refused(c.Mutex(d + "/held").TryLock(mine)), ErrSelfDeadlock},
		"/held negative": {refused(c.Mutex(d+"/held").Lock(ctx, WithWait(-1))), ErrInvalid},
		"/held down":     {held.Downgrade(ctx), ErrUnsupported},
		"/rw up":         {write.Upgrade(ctx), ErrUnsupported},
		"/none":          {refused(held.Txn(ctx, czk.Delete{Path: d + "/none", Version: -1})), czk.ErrNoNode},
		"/none break":    {c.Inspector().Break(ctx, d+"/none", "n", 1), ErrNotHeld},
		"/none revoke":   {c.Inspector().Revoke(ctx, d+"/none", "n", recipe.Revocation{}), ErrNotHeld},
		"/sem":           {refused(c.Semaphore(d+"/sem", 1).Acquire(ctx, 2)), ErrInvalid},
		"/sem limit":     {c.Semaphore(d+"/sem", 1).SetPermits(ctx, 0), ErrInvalid},
		"/held publish":  {held.Publish(ctx, nil), ErrUnsupported},
		"/held set": {refused(other.TryAll(ctx, other.Mutex(d+"/a").Request(),
			other.Mutex(d+"/held").Request())), ErrNotAcquired},
		"/gone":        {gone.Check(ctx), ErrLost},
		"/gone unlock": {gone.Unlock(ctx), ErrLost},
		"/do": {c.Mutex(d+"/do").Do(ctx, func(_ context.Context, l *Lease) error {
			expect.OK(t, other.Inspector().Break(ctx, d+"/do", recipe.Base(l.Node()), l.Token()))
			soon(t, "the loss", l.Lost())
			return failure
		}), failure},
		"127.0.0.1:1": {refused(Dial(short, "127.0.0.1:1")), context.DeadlineExceeded},
		"http":        {refused(Dial(ctx, "http://127.0.0.1:1")), ErrInvalid},
		"1.2s":        {refused(Dial(ctx, addr(t), WithSessionTimeout(1200*time.Millisecond))), ErrInvalid},
	} {
		t.Run(path, func(t *testing.T) {
			names := strings.Fields(path)[0]
			if names[0] == '/' {
				names = d + names
			}
			text := e.err.Error()
			expect.Is(t, e.err, e.want, "%s", path)
			expect.That(t, strings.HasPrefix(text, "client: "), "%s: %q has no prefix", path, text)
			expect.Has(t, text, names)
			for name, most := range map[string]int{"client: ": 1, "zk: ": 1, "fence: ": 1} {
				n := strings.Count(text, name)
				expect.That(t, n <= most, "%s: %q has %q %d times", path, text, name, n)
			}
		})
	}
	unlock(t, held)
	unlock(t, write)
}
