package client_test

import (
	"context"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/zlocktest"
)

var (
	programSeed  = flag.Uint64("programs.seed", 0, "seed of the random programs; 0 for another one each time")
	programSteps = flag.Int("programs.steps", 120, "steps of each worker")
)

// programOptions are the options that random programs give to locks and calls. Every option of the package is
// in programOptions or in otherOptions.
var programOptions = map[string]func(r *rand.Rand) client.Option{
	"WithReason":        func(*rand.Rand) client.Option { return client.WithReason("random") },
	"WithACL":           func(*rand.Rand) client.Option { return client.WithACL(zk.WorldACL(zk.PermAll)...) },
	"WithMaxWriterWait": func(r *rand.Rand) client.Option { return client.WithMaxWriterWait(ms(r, 50)) },
	"WithReentrant":     func(*rand.Rand) client.Option { return client.WithReentrant() },
	"WithOwnPlace":      func(*rand.Rand) client.Option { return client.WithOwnPlace() },
	"WithWait":          func(r *rand.Rand) client.Option { return client.WithWait(ms(r, 200)) },
	"WithRevocable":     func(r *rand.Rand) client.Option { return client.WithRevocable(ms(r, 20)) },
	"WithoutRequeue":    func(*rand.Rand) client.Option { return client.WithoutRequeue() },
	"WithEvents":        func(*rand.Rand) client.Option { return client.WithEvents(func(client.Event) {}) },
	"WithMaxHold":       func(r *rand.Rand) client.Option { return client.WithMaxHold(ms(r, 300), ms(r, 20)) },
	"WithLinger":        func(*rand.Rand) client.Option { return client.WithLinger() },
}

// otherOptions are the options of a path, on which all its users must agree, and the options of Dial.
var otherOptions = map[string]string{
	"WithLayout": "path", "WithPolicy": "path", "WithLockDelay": "path",
	"WithSessionTimeout": "dial", "WithMargin": "dial", "WithLogger": "dial", "WithName": "dial",
	"WithAuth":   "dial",
	"WithDialer": "replaces what is between client and server", "WithTLS": "the server of this test has none",
}

func ms(r *rand.Rand, most int) time.Duration { return time.Duration(r.IntN(most)) * time.Millisecond }

// programPath is a path, with the options on which all its users agree.
type programPath struct {
	path, kind string
	opts       []client.Option
}

var programPaths = []programPath{
	{path: "/m", kind: "mutex"}, {path: "/kazoo", kind: "mutex", opts: []client.Option{
		client.WithLayout(client.LayoutKazoo)}},
	{path: "/delay", kind: "mutex", opts: []client.Option{client.WithLockDelay(10 * time.Millisecond)}},
	{path: "/rw", kind: "rw"}, {path: "/host", kind: "rw", opts: []client.Option{
		client.WithLayout(client.LayoutHost)}},
	{path: "/fair", kind: "rw", opts: []client.Option{client.WithPolicy(client.PolicyFair)}},
	{path: "/reader", kind: "rw", opts: []client.Option{client.WithPolicy(client.PolicyReader)}},
	{path: "/writer", kind: "rw", opts: []client.Option{client.WithPolicy(client.PolicyWriter)}},
	{path: "/sem", kind: "sem"}, {path: "/foreign", kind: "sem"},
	{path: "/leader", kind: "elect"}, {path: "/latch", kind: "elect", opts: []client.Option{
		client.WithLayout(client.LayoutLatch)}},
}

const (
	programPermits = 3
	foreignData    = "host=db1;user=app"
)

// worker is one goroutine of a random program.
type worker struct {
	r         *rand.Rand
	ref       *referee
	id        int // the number of the client
	c         *client.Client
	names     []string // the names of the options
	ops       []string // the names of the calls
	favourite int
	claims    []*claim
}

// path() returns a path of one of these kinds, mostly the path that all workers prefer.
func (w *worker) path(kinds ...string) programPath {
	kind := kinds[w.r.IntN(len(kinds))]
	var all []programPath
	for _, p := range programPaths {
		if p.kind == kind {
			all = append(all, p)
		}
	}
	if w.r.IntN(4) > 0 {
		return all[w.favourite%len(all)]
	}
	return all[w.r.IntN(len(all))]
}

// options() returns up to three options of programOptions.
func (w *worker) options() (opts []client.Option) {
	for range w.r.IntN(4) {
		opts = append(opts, programOptions[w.names[w.r.IntN(len(w.names))]](w.r))
	}
	return opts
}

// split() returns options for the lock and options for the call.
func (w *worker) split(p programPath) (lock, call []client.Option) {
	lock, call = append(w.options(), p.opts...), w.options()
	if len(w.claims) > 0 && w.r.IntN(2) == 0 {
		lock = append(lock, client.WithReentrant())
	}
	return lock, call
}

// take() runs a call that may return a lease. The new lease may be nested in another lease of the
// worker.
func (w *worker) take(path string, mode fence.Mode, n int, call func(ctx context.Context) (*client.Lease,
	error)) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+w.r.IntN(400))*time.Millisecond)
	defer cancel()
	var outer *claim
	if len(w.claims) > 0 && w.r.IntN(2) == 0 {
		outer = w.claims[w.r.IntN(len(w.claims))]
		nested, end := context.WithTimeout(outer.lease.Context(), time.Duration(1+w.r.IntN(200))*time.Millisecond)
		defer end()
		ctx = nested
	}
	before := w.ref.start(w.id)
	l, err := call(ctx)
	expect.That(w.ref.t, (l == nil) != (err == nil), "%s: a lease %v and the error %v", path, l, err)
	if l == nil {
		return
	}
	c := &claim{client: w.id, path: path, lease: l, mode: mode, n: n, outer: outer}
	if mode == fence.Permit {
		c.of = programPermits
	}
	w.ref.granted(c, before)
	w.claims = append(w.claims, c)
}

// give() ends one of the worker's claims.
func (w *worker) give(i int) {
	c := w.claims[i]
	w.claims = append(w.claims[:i:i], w.claims[i+1:]...)
	w.ref.released(c)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+w.r.IntN(50))*time.Millisecond)
	defer cancel()
	if w.r.IntN(4) == 0 {
		_ = c.lease.Release()
		return
	}
	_ = c.lease.Unlock(ctx)
}

// someClaim calls f with one of the worker's claims.
func (w *worker) someClaim(f func(ctx context.Context, c *claim)) {
	if len(w.claims) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+w.r.IntN(100))*time.Millisecond)
	defer cancel()
	f(ctx, w.claims[w.r.IntN(len(w.claims))])
}

// run() takes at least the given number of steps, and more if few calls were granted, as on a busy
// machine.
func (w *worker) run(steps int) {
	for n := 0; n < steps || n < 20*steps && !w.ref.enough(steps); n++ {
		for len(w.claims) > 3 || len(w.claims) > 0 && w.r.IntN(3) == 0 {
			w.give(w.r.IntN(len(w.claims)))
		}
		programOps[w.ops[w.r.IntN(len(w.ops))]](w)
	}
	for len(w.claims) > 0 {
		w.give(0)
	}
}

// TestRandomProgramsKeepTheLocks drives the public operations and options of the package
// at random, beside removed nodes, ended sessions, cut connections and restores.
func TestRandomProgramsKeepTheLocks(t *testing.T) {
	t.Parallel()
	seed := *programSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-programs.seed %d", seed)
	s := zlocktest.Config{SweepInterval: 50 * time.Millisecond}.Start(t)
	raw := must.Get(zk.Dial(t.Context(), s.Addr, zk.Options{}))(t)
	defer raw.Close(context.Background())
	must.Get(raw.Create(t.Context(), zk.Create{Path: "/foreign", Data: []byte(foreignData)}))(t)
	ref := newReferee(t)
	names, ops := slices.Sorted(maps.Keys(programOptions)), slices.Sorted(maps.Keys(programOps))
	var clients []*client.Client
	var all []int
	for i := range 4 {
		c, err := client.Dial(t.Context(), s.Addr, client.WithSessionTimeout(4*time.Second),
			client.WithMargin(time.Second),
			client.WithLogger(slog.New(slog.DiscardHandler)), client.WithName("random"),
			client.WithAuth("digest", "random:program"), ref.hears())
		must.OK(t, err)
		clients, all = append(clients, c), append(all, i)
	}
	var workers sync.WaitGroup
	for i := range 12 {
		w := &worker{
			r: rand.New(rand.NewPCG(seed, uint64(i))), ref: ref, id: i % len(clients), c: clients[i%len(clients)],
			names: names, ops: ops, favourite: int(seed % 60),
		}
		workers.Go(func() { w.run(*programSteps) })
	}
	done := make(chan struct{})
	go func() {
		workers.Wait()
		close(done)
	}()
	disturb(t, rand.New(rand.NewPCG(seed, 99)), s, raw, ref, clients, all, done)
	foreign, err := raw.Get(t.Context(), "/foreign")
	must.OK(t, err)
	expect.Equal(t, string(foreign.Data), foreignData, "the data of another program")
	expect.That(t, ref.grants >= *programSteps, "%d grants: the test asks for too little", ref.grants)
	t.Logf("%d grants", ref.grants)
	endStrays(s, raw, clients)
	free(t, s.Addr)
	for _, c := range clients {
		expect.OK(t, c.Close(t.Context()))
	}
}

// disturb() removes nodes, ends sessions, cuts connections and restores backups until the workers are done.
func disturb(t *testing.T, r *rand.Rand, s *zlocktest.Server, raw *zk.Conn, ref *referee,
	clients []*client.Client, all []int, done <-chan struct{}) {
	var backup []byte
	for {
		select {
		case <-done:
			return
		case <-time.After(ms(r, 30)):
		}
		switch n := r.IntN(40); {
		case n < 30:
			p := programPaths[r.IntN(len(programPaths))].path
			names, _, err := raw.Children(t.Context(), p)
			if err != nil || len(names) == 0 {
				continue
			}
			node := p + "/" + names[r.IntN(len(names))]
			ref.remove(p, node, func() error { return raw.Delete(t.Context(), node, -1) })
		case n < 36:
			s.Disconnect()
		case n < 38:
			k := r.IntN(len(clients))
			if id := clients[k].Session().ID; id != 0 {
				ref.force(func() { s.KillSession(id) }, k)
			}
		case backup == nil:
			backup = s.Backup()
		default:
			ref.force(func() { restore(s, backup) }, all...)
			backup = nil
		}
	}
}

// restore() restores a backup, but not the sessions that have ended since the backup was made. If a client
// has not noticed the end of such a session, it would resume the session without knowing that removed nodes
// are back.
func restore(s *zlocktest.Server, backup []byte) {
	alive := s.Sessions()
	s.Restore(backup)
	endOthers(s, alive)
}

// endOthers ends all sessions except those in `stay`.
func endOthers(s *zlocktest.Server, stay []int64) {
	for _, id := range s.Sessions() {
		if !slices.Contains(stay, id) {
			s.KillSession(id)
		}
	}
}

// endStrays ends the sessions without a client, which a restore brought back. Otherwise they could last long,
// because a server that stalls often gives sessions more time.
func endStrays(s *zlocktest.Server, raw *zk.Conn, clients []*client.Client) {
	used := []int64{raw.Session().ID}
	for _, c := range clients {
		used = append(used, c.Session().ID)
	}
	endOthers(s, used)
}

// free() takes each lock with a new client. Every released lock must be free, although the sessions of the
// other clients live.
func free(t *testing.T, addr string) {
	c := must.Get(client.Dial(t.Context(), addr))(t)
	defer c.Close(context.Background())
	for _, p := range programPaths {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		var l *client.Lease
		var err error
		switch p.kind {
		case "sem":
			l, err = c.Semaphore(p.path, programPermits, p.opts...).Acquire(ctx, programPermits)
		case "rw":
			l, err = c.RWMutex(p.path, p.opts...).Lock(ctx)
		case "elect":
			l, err = c.Election(p.path, p.opts...).Campaign(ctx, nil)
		default:
			l, err = c.Mutex(p.path, p.opts...).Lock(ctx)
		}
		if err == nil {
			err = l.Unlock(ctx)
		}
		if err != nil && (p.path != "/foreign" || !errors.Is(err, client.ErrMixedLayout)) {
			t.Errorf("%s is not free: %v", p.path, err)
		}
		cancel()
	}
}

// TestRandomProgramsKnowEveryOption fails if an option or a call is in no table.
func TestRandomProgramsKnowEveryOption(t *testing.T) {
	t.Parallel()
	names := must.Get(filepath.Glob("*.go"))(t)
	found := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file := must.Get(parser.ParseFile(token.NewFileSet(), name, nil, 0))(t)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "With") {
				continue
			}
			found++
			expect.That(t, programOptions[f.Name.Name] != nil || otherOptions[f.Name.Name] != "",
				"option %s is in no table", f.Name.Name)
		}
	}
	must.That(t, found != 0, "no option was found")
	for _, v := range []any{
		&client.Mutex{}, &client.RWMutex{}, &client.Semaphore{}, &client.Election{}, &client.Lease{},
		&client.Client{}, &client.Inspector{},
	} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumMethod() {
			name := typ.Elem().Name() + "." + typ.Method(i).Name
			expect.That(t, programOps[name] != nil || otherCalls[name] != "", "%s is in no table", name)
		}
	}
}
