//go:build linux

package abuse

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
)

var (
	draws = flag.Int("abuse.draws", 8, "random attacks")
	seed  = flag.Uint64("abuse.seed", 1, "of the first random attack")
	burst = flag.Duration("abuse.burst", time.Second, "how long a random attack lasts")
)

// The limits that docs/limits.md states for one address.
const (
	longestHold = 20 * time.Millisecond // processor time of one request
	lockShare   = 3                     // holds may take 1/lockShare of the time
	freeHolds   = 60 * time.Millisecond // holds may take this much more time: for one burst and one request
)

// draw is an attack with random properties: the nodes that it finds, its identity and its requests.
type draw struct {
	*rand.Rand
	seed           uint64
	levels, length int        // of the deepest path: its levels, and the bytes of each name
	acl            []jute.ACL // ACL of the nodes that requests name
	nodes          int        // number of nodes, which requests name in turn
	data           int        // bytes in each node
	quotas         int
	text           int // bytes of each quota's limits
	written        int // bytes of data in each write
	identities     int
	watchers       int
	prefixes       bool // whether each watcher has a recursive watch on each level of the path
	attackers      int
	op, beside     jute.OpCode // the operations of the requests, in turn
	malformed      bool        // a request is cut short
	inside         jute.OpCode // operation in a multi
	ops            int
	ephemeral      bool
	reads          bool // the attackers read the answers
	unfinished     bool // the last byte of a request never comes
}

// drawAttack draws an attack. To add a kind of attack, extend this function.
func drawAttack(seed uint64) *draw {
	r := rand.New(rand.NewPCG(seed, 77))
	log := func(most int) int { return int(float64(most) * r.Float64() * r.Float64()) }
	d := &draw{Rand: r, seed: seed,
		levels: 1 + log(1020), length: 1 + log(61), nodes: 1 + log(200), data: log(1_000_000), quotas: log(12),
		text: log(1_000_000), written: 1 + log(1_000_000), malformed: r.IntN(12) == 0,
		identities: log(60), watchers: log(58), prefixes: r.IntN(3) == 0, attackers: 1 + log(40),
		ops: 1 + log(50_000), ephemeral: r.IntN(4) == 0, reads: r.IntN(4) > 0, unfinished: r.IntN(12) == 0}
	ops := []jute.OpCode{jute.OpMulti, jute.OpMulti, jute.OpMulti, jute.OpMultiRead, jute.OpMultiRead,
		jute.OpSetWatches,
		jute.OpGetData, jute.OpExists, jute.OpGetChildren, jute.OpGetEphemerals, jute.OpSetData, jute.OpCreate,
		jute.OpSetACL, jute.OpSync, jute.OpDelete, jute.OpCreateTTL, jute.OpCreateContainer, jute.OpGetACL,
		jute.OpGetAllChildrenNumber, jute.OpSetWatches2, jute.OpAddWatch, jute.OpRemoveWatches, jute.OpCheckWatches,
		jute.OpWhoAmI, jute.OpAuth, jute.OpSASL, jute.OpReconfig, jute.OpCloseSession}
	d.op = ops[r.IntN(len(ops))]
	if d.beside = d.op; r.IntN(2) == 0 {
		d.beside = ops[r.IntN(len(ops))]
	}
	inside := []jute.OpCode{jute.OpCheck, jute.OpSetData, jute.OpCreate, jute.OpDelete}
	if d.op == jute.OpMultiRead || d.op != jute.OpMulti && d.beside == jute.OpMultiRead {
		inside = []jute.OpCode{jute.OpGetData, jute.OpGetChildren}
	}
	d.inside = inside[r.IntN(len(inside))]
	for i := range log(1500) % 1000 {
		id := acl.DigestID(fmt.Sprintf("%d-%d:p", seed, i))
		switch r.IntN(3) {
		case 0:
			id = jute.ID{Scheme: "ip", ID: fmt.Sprintf("10.%d.%d.%d/%d", r.IntN(9), i/250, i%250, 8+r.IntN(25))}
		case 1:
			if i%50 == 0 {
				id = jute.ID{Scheme: "auth"}
			}
		}
		d.acl = append(d.acl, jute.ACL{Perms: int32(r.IntN(32)), ID: id})
	}
	d.acl = append(d.acl, jute.WorldAnyone...)
	return d
}

func (d *draw) String() string {
	return fmt.Sprintf("seed %d: %v and %v of %d %v on %d nodes of %d bytes, %d levels of %d, ACL of %d, %d "+
		"identities, "+
		"%d watchers (prefixes %v), %d quotas of %d bytes, %d bytes written, %d attackers, ephemeral %v, reads %v, unfinished %v, malformed %v",
		d.seed, d.op, d.beside, d.ops, d.inside, d.nodes, d.data, d.levels, d.length, len(d.acl), d.identities,
		d.watchers, d.prefixes, d.quotas, d.text, d.written, d.attackers, d.ephemeral, d.reads, d.unfinished,
		d.malformed)
}

func (d *draw) dir(levels int) string {
	return strings.Repeat("/"+strings.Repeat("d", d.length), levels)
}

// node() returns the path of a node below the deepest directory. Requests use these nodes in turn.
func (d *draw) node(i int) string { return fmt.Sprintf("%s/%d", d.dir(d.levels), i%d.nodes) }

func (d *draw) flags() int32 {
	if d.ephemeral {
		return jute.FlagEphemeral
	}
	return 0
}

// prepare() creates what the attack finds, as a client without rights.
func (d *draw) prepare(c *wire.Conn) error {
	create := func(path string, data int, acl []jute.ACL) error {
		_, err := c.Call(jute.OpCreate, wire.Create(path, bytes.Repeat([]byte(","), data), acl, 0))
		return err
	}
	for i := 1; i <= d.levels; i++ {
		if err := create(d.dir(i), 0, jute.WorldAnyone); err != nil {
			return err
		}
	}
	for i := range d.quotas { // set quotas on the directory, and on directories that do not exist
		top := "/zookeeper/quota" + d.dir(1)
		if i > 0 {
			top = fmt.Sprint("/zookeeper/quota/q", i)
		}
		for k, path := range []string{top, top + "/zookeeper_limits", top + "/zookeeper_stats"} {
			if err := create(path, k%2*d.text, jute.WorldAnyone); err != nil {
				return err
			}
		}
	}
	for i := range d.nodes {
		acl := append([]jute.ACL{{Perms: int32(i), ID: jute.ID{Scheme: "world", ID: "anyone"}}}, d.acl...)
		if err := create(d.node(i), min(d.data, 4_000_000/d.nodes), acl); err != nil {
			return err
		}
	}
	return nil
}

// body() returns the body of one operation.
func (d *draw) body(op jute.OpCode, i int) []byte {
	switch op {
	case jute.OpCheck, jute.OpDelete:
		return wire.PathVersion(d.node(i), -1)
	case jute.OpSetData:
		written := min(d.written, 4_000_000/d.nodes)
		if d.op == jute.OpMulti || d.beside == jute.OpMulti {
			written = 1 + written/d.ops
		}
		return wire.SetData(d.node(i), make([]byte, written), -1)
	case jute.OpCreate:
		return wire.Create(fmt.Sprintf("%s/n%d-%d", d.dir(d.levels), d.IntN(1<<30), i), nil, jute.WorldAnyone,
			d.flags())
	case jute.OpCreateTTL, jute.OpCreateContainer:
		b := wire.Create(fmt.Sprintf("%s/n%d-%d", d.dir(d.levels), d.IntN(1<<30), i), make([]byte, d.written/1000),
			jute.WorldAnyone, jute.FlagContainer)
		if op == jute.OpCreateTTL {
			b = b[:len(b)-4].Int(jute.FlagPersistentTTL).Long(1)
		}
		return b
	case jute.OpAddWatch, jute.OpRemoveWatches, jute.OpCheckWatches:
		return wire.PathVersion(d.node(i), jute.AddWatchRecursive)
	case jute.OpWhoAmI, jute.OpCloseSession:
		return nil
	case jute.OpAuth:
		return wire.Auth("digest", fmt.Sprint(d.seed, i, ":p"))
	case jute.OpSASL:
		return wire.Body{}.Str("token")
	case jute.OpReconfig:
		return wire.Body{}.Str(d.dir(1)).Str("").Str(strings.Repeat(",", d.text)).Long(-1)
	case jute.OpSetACL:
		return wire.SetACL(d.node(i), d.acl, -1)
	case jute.OpGetChildren:
		return wire.PathWatch(d.dir(d.levels), true)
	case jute.OpGetEphemerals, jute.OpSync, jute.OpGetAllChildrenNumber:
		return wire.Path(d.dir(d.levels))
	case jute.OpGetACL:
		return wire.Path(d.node(i))
	case jute.OpSetWatches, jute.OpSetWatches2:
		var paths []string
		for k := range min(d.ops, 900_000/(len(d.node(0))+10)) {
			paths = append(paths, d.node(k))
		}
		if op == jute.OpSetWatches2 {
			return wire.SetWatches2(1<<60, nil, nil, nil, paths[:len(paths)/2], paths[:len(paths)/10])
		}
		return wire.SetWatches(int64(d.IntN(2)), paths, nil, paths[:len(paths)/10])
	case jute.OpMulti, jute.OpMultiRead:
		var list []wire.Op
		for size, k := 0, 0; k < d.ops; k++ {
			b := d.body(d.inside, k)
			if size += len(b) + 9; size > 1_040_000 {
				break
			}
			list = append(list, wire.Op{Type: d.inside, Body: b})
		}
		return wire.Multi(list...)
	}
	return wire.PathWatch(d.node(i), true)
}

// attack() floods the server from one connection.
func (d *draw) attack(c *wire.Conn, frames [][]byte) error {
	if d.unfinished {
		last := frames[0]
		if err := c.WriteRaw(last[:len(last)-1]); err != nil {
			return err
		}
		return hold(c)
	}
	if !d.reads {
		for k := 0; ; k++ {
			if err := c.WriteRaw(frames[k%len(frames)]); err != nil {
				return err
			}
		}
	}
	return flood(c, func(k int) []byte { return frames[k%len(frames)] })
}

// open() gives f a session from the attacker's address, with the identity of d.
func (d *draw) open(ctx context.Context, addr string, f func(c *wire.Conn) error) error {
	a := &attacker{ctx: ctx}
	return a.session(target{Client: addr}, func(c *wire.Conn) error {
		for i := range d.identities {
			if _, err := c.Call(jute.OpAuth, wire.Auth("digest", fmt.Sprintf("%d-%d:p", d.seed, i))); err != nil {
				return err
			}
		}
		return f(c)
	})
}

// watch() sets recursive watches, and keeps the connection until the attack ends.
func (d *draw) watch(c *wire.Conn, i int) error {
	for level := d.levels; level > 0; level-- {
		if err := c.AddWatch(d.dir(level), jute.AddWatchRecursive); err != nil {
			return err
		}
		if !d.prefixes {
			break
		}
	}
	if !d.reads {
		return hold(c)
	}
	c.SetReadDeadline(time.Time{})
	_, err := io.Copy(io.Discard, c)
	return err
}

// The type measured is the cost of an attack.
type measured struct {
	holds
	lasted  time.Duration
	memory  int64         // bytes by which the process grew; it also runs the attackers
	slowest time.Duration // the longest lock cycle of the innocent client
	locks   int
}

// run() makes the attack on a server of its own.
func (d *draw) run(t *testing.T) (m measured) {
	c := newCore(t)
	must.OK(t, d.open(t.Context(), c.addr, d.prepare))
	frames := make([][]byte, 4)
	for i := range frames {
		op := d.op
		if i%2 > 0 {
			op = d.beside
		}
		body := d.body(op, i)
		if d.malformed && len(body) > 0 {
			body = body[:len(body)-1]
		}
		frames[i] = wire.AppendRequest(nil, int32(i+1), op, body)
	}
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	before := mem.HeapAlloc
	c.take()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	again := func(n int, f func(c *wire.Conn, i int) error) {
		for i := range n {
			wg.Go(func() {
				for ctx.Err() == nil {
					d.open(ctx, c.addr, func(c *wire.Conn) error { return f(c, i) })
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	began := time.Now()
	again(d.watchers, d.watch)
	again(d.attackers, func(c *wire.Conn, _ int) error { return d.attack(c, frames) })
	wg.Go(func() { m.locks, m.slowest = lockAndUnlock(ctx, c) })
	for end := began.Add(*burst); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		runtime.ReadMemStats(&mem)
		m.memory = max(m.memory, int64(mem.HeapAlloc)-int64(before))
	}
	cancel()
	wg.Wait()
	m.lasted = time.Since(began)
	m.holds = c.take()
	return m
}

// lockAndUnlock takes a lock again and again, from an address that is not the
// attacker's.
func lockAndUnlock(ctx context.Context, on *core) (locks int, slowest time.Duration) {
	nc, err := net.Dial("tcp", on.addr)
	if err != nil {
		return 0, 0
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	c := wire.New(nc)
	if c.Connect(wire.NewSession(40_000)) != nil {
		return 0, 0
	}
	on.innocent.Store(c.Session.ID)
	for {
		began := time.Now()
		path, err := c.Create("/innocent-", nil, jute.FlagEphemeralSequential)
		if err == nil {
			err = c.Delete(path, -1)
		}
		if err != nil {
			return locks, slowest
		}
		locks, slowest = locks+1, max(slowest, time.Since(began))
	}
}

func (m *measured) String() string {
	return fmt.Sprintf("lock held for %v of %v, at most %v and %d steps, %d MiB more, the slowest of %d locks %v",
		m.sum.Round(time.Millisecond), m.lasted.Round(time.Millisecond), m.longest, m.steps, m.memory>>20, m.locks,
		m.slowest)
}

// late() reports whether the attack took more time than an address may use. `slower` says how many times
// longer a step takes on this machine than usual.
func (m *measured) late(slower float64) bool {
	most := time.Duration(slower * float64(longestHold))
	return m.longest > most || m.sum > m.lasted/lockShare+freeHolds || m.slowest > mostHandOff
}

// TestRandomAttacks draws attacks and checks the limits of docs/limits.md for one address: steps and memory
// always, times only with -abuse.strict.
func TestRandomAttacks(t *testing.T) {
	var worst measured
	var share float64
	again := 0
	slower := slower(t)
	for i := range uint64(*draws) {
		seed := *seed + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := drawAttack(seed)
			m := d.run(t)
			t.Logf("%v\n%v", d, &m)
			for range 2 {
				if *strict && m.late(slower) {
					again++
					d = drawAttack(seed)
					m = d.run(t)
					t.Logf("again: %v", &m)
				}
			}
			switch {
			case m.steps > bounds.WideSteps: // the budget of one write under the rules of this release
				t.Errorf("more steps than the budget: %v\n%v", d, &m)
			case m.memory > mostMemory:
				t.Errorf("too much memory: %v\n%v", d, &m)
			case *strict && m.late(slower):
				t.Errorf("beyond the bounds three times: %v\n%v", d, &m)
			}
			worst.longest, worst.memory = max(worst.longest, m.longest), max(worst.memory, m.memory)
			worst.slowest, worst.steps = max(worst.slowest, m.slowest), max(worst.steps, m.steps)
			share = max(share, float64(m.sum)/float64(m.lasted))
		})
	}
	t.Logf("%d attacks, %d runs repeated: the longest hold of the lock took %v, the largest share of it was "+
		"%.2f; at most %d steps, %d MiB, a lock in %v",
		*draws, again, worst.longest, share, worst.steps, worst.memory>>20, worst.slowest)
}
