package oracle

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree/acl"
)

// Generator creates a random program step by step. It follows the servers' answers, so that
// most steps meet existing nodes.
type Generator struct {
	rng   *rand.Rand
	conns map[string]bool // names of the live connections
	known []string        // names that have a session
	nodes []string        // paths that probably exist
	// `watched` has for each connection the paths that it lately asked to watch.
	watched map[string][]string
	// `restarts` says that the program may restart the second server.
	restarts bool
	// `tokens` counts the SASL tokens that each connection has sent: zlockd accepts fewer than ZooKeeper.
	tokens map[string]int
}

// NewGenerator returns a generator for one program. The same seed and the same
// answers give the same program.
func NewGenerator(seed, episode uint64) *Generator {
	return &Generator{rng: rand.New(rand.NewPCG(seed, episode)), conns: map[string]bool{},
		watched: map[string][]string{}, tokens: map[string]int{}}
}

var connNames = []string{"A", "B", "C", "D", "E"}

// one() returns one of its arguments at random.
func one[T any](g *Generator, list ...T) T { return list[g.rng.IntN(len(list))] }

// chance() reports true in n of 100 cases.
func (g *Generator) chance(n int) bool { return g.rng.IntN(100) < n }

// Next returns the next steps. All of them belong to one connection and are sent in one piece.
func (g *Generator) Next() []Step {
	if g.restarts && g.rng.IntN(100) == 0 {
		return []Step{{Conn: "*", Op: "restart"}}
	}
	name := g.pick()
	if !g.conns[name] {
		return []Step{g.connect(name)}
	}
	switch n := g.rng.IntN(1000); {
	case n < 10:
		g.conns[name] = false
		return []Step{{Conn: name, Op: "drop"}}
	case n < 16:
		g.conns[name] = false
		return []Step{{Conn: name, Op: "closeSession"}}
	case n < 24:
		// Connect a client that is already connected, or attach to another client's session.
		return []Step{g.connect(name)}
	case n < 34:
		return []Step{g.auth(name)}
	case n < 52:
		return g.quota(name)
	case n < 55:
		return []Step{{Conn: name, Op: "raw", Data: one(g, none...)}}
	case n < 58:
		return []Step{g.unknown(name)}
	}
	steps := []Step{g.request(name)}
	if g.chance(50) {
		for range 1 + g.rng.IntN(6) {
			s := g.request(name)
			s.Joined = true
			steps = append(steps, s)
		}
	}
	return steps
}

// pick() chooses the acting connection: mostly a live one.
func (g *Generator) pick() string {
	name := one(g, connNames...)
	for range 2 {
		if !g.conns[name] {
			name = one(g, connNames...)
		}
	}
	return name
}

// connect() returns a step that gives a connection a session: a new session, its former one, or that of
// another connection.
func (g *Generator) connect(name string) Step {
	s := Step{Conn: name, Op: "connect", Timeout: 60000, Back: -2}
	if g.chance(10) {
		s.Timeout = one[int32](g, 0, 1, -5, 59999, 60001, math.MaxInt32, math.MinInt32)
	}
	s.Old = g.chance(20)
	if g.chance(40) {
		s.Back = g.rng.IntN(20)
	}
	if g.chance(3) {
		s.Back = -1
	}
	switch {
	case len(g.known) > 0 && g.chance(60):
		s.Op, s.Session = "attach", name
		if g.chance(20) {
			s.Session = one(g, g.known...)
		}
		if g.chance(10) {
			s.Password = one(g, "wrong", "short", "empty", "null")
		}
	case g.chance(10):
		s.Password = one(g, "null", "empty", "short")
	}
	s.ReadOnly = !s.Old && g.chance(10)
	if g.chance(10) {
		g.damageConnect(&s)
	}
	return s
}

// damageConnect turns a connect request into one that no client sends.
func (g *Generator) damageConnect(s *Step) {
	const passwordAt = 24
	switch g.rng.IntN(4) {
	case 0:
		s.Cut = g.rng.IntN(46)
	case 1:
		s.Extra = one(g, "\x00", "\x01", "trailing")
	case 2: // a wrong length of the password
		s.At, s.Patch = passwordAt, one(g, "\xff\xff\xff\xff", "\xff\xff\xff\xfe", "\x7f\xff\xff\xff",
			"\x00\x00\x00\x0f", "\x00\x00\x00\x11", "\x00\x00\x00\x12")
	case 3:
		s.At = one(g, 0, 4, 4, 44) // offsets of the version, the zxid and the read-only byte
		small := "\x00\x00\x00\x01"
		if s.At == 4 {
			small = "\x7f\xff\xff\xff" // neither server has reached this zxid; of a smaller one only one might have
		}
		s.Patch = one(g, small, "\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff")
		if s.Op == "connect" && g.chance(30) {
			s.At, s.Patch = 16, one(g, "\x00\x00\x00\x00\x00\x00\x00\x01", "\xff\xff\xff\xff\xff\xff\xff\xff",
				"\x80\x00\x00\x00\x00\x00\x00\x00")
		}
	}
}

// frame() returns a frame with this header and record.
func frame(xid int32, op jute.OpCode, record string) []byte {
	return wire.AppendRequest(nil, xid, op, []byte(record))
}

// Each element of `none` holds bytes that do not begin a request. A server that gets them closes the
// connection.
var none = [][]byte{
	[]byte("\xff\xff\xff\xff"), []byte("\x80\x00\x00\x00\x00\x00\x00\x01"), []byte("\x7f\xff\xff\xff"),
	[]byte("\x00\x10\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01"), []byte("\x00\x00\x00\x00"),
	[]byte("\x00\x00\x00\x04\x00\x00\x00\x01"),
	[]byte("\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00"), []byte("ruok"), []byte("srvr\n"),
	[]byte("GET / HTTP/1.0\r\n\r\n"),
	frame(jute.XidAuth, jute.OpAuth, ""), frame(jute.XidAuth, jute.OpAuth,
		"\x00\x00\x00\x00\x00\x00\x00\x06dig"),
	frame(jute.XidAuth, jute.OpAuth, "\x00\x00\x00\x00\x00\x00\x00\x06digest\xff\xff\xff\xfe"),
	frame(jute.XidAuth, jute.OpAuth, "\x00\x00\x00\x00\x00\x00\x00\x06digest\x00\x00\x00\x09u1:p1"),
	frame(1, jute.OpSASL, ""), frame(1, jute.OpSASL, "\x00\x00\x00\x02x"),
	frame(1, jute.OpSASL, "\xff\xff\xff\xfe"),
}

func (g *Generator) auth(name string) Step {
	s := Step{Conn: name, Op: "auth", Scheme: "digest", Cred: one(g, "u1:p1", "u1:p1", "u2:p2", "u2:p2", Super)}
	switch g.rng.IntN(20) {
	case 0:
		s.Scheme = one(g, "world", "auth", "none", "sasl", "super", "")
	case 1:
		s.Scheme = "ip"
	case 2:
		s.Cred = one(g, "", "nocolon", "a:b:c", ":", ":p", "u1:", "u1:wrong", "super:wrong", "ü:é", "u1:p1\x00")
	case 3:
		if g.tokens[name]++; g.tokens[name] <= 3 {
			return Step{Conn: name, Op: "sasl", Data: []byte(one(g, "", "token"))}
		}
	case 4: // no credentials
		s.Scheme = one(g, "digest", "ip", "ip", "none")
		s.At, s.Patch = 8+len(s.Scheme), "\xff\xff\xff\xff"
	case 5:
		s.Scheme, s.Xid = "digest", one[int32](g, 0, 5, -2, -8, math.MinInt32)
	}
	return s
}

// unknown() returns a request for an operation that does not exist.
func (g *Generator) unknown(name string) Step {
	return Step{
		Conn: name, Op: "op", Code: one[int32](g, 0, -1, -2, -12, 10, 23, 50, 99, 108, 109, 1000, math.MaxInt32,
			math.MinInt32),
		Extra: one(g, "", "", "\x00\x00\x00\x02/a\x00", "rest"), Xid: one[int32](g, 0, 0, -4, -8),
	}
}

// limits are the values of a quota.
var limits = []string{
	"count=3,bytes=-1", "count=-1,bytes=4",
	"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2",
	"count=-1,bytes=-1=;byteHardLimit=6;countHardLimit=-1",
	"count=1,bytes=1=;byteHardLimit=20;countHardLimit=4", "count=-1,bytes=-1=;byteHardLimit=0;countHardLimit=0",
}

// quota() returns steps that set, change or remove a limit of a path.
func (g *Generator) quota(name string) []Step {
	path := g.top()
	if g.chance(25) {
		path += "/" + one(g, "a", "b", "c") // one quota inside another
	}
	dir := "/zookeeper/quota" + path
	switch n := g.rng.IntN(100); {
	case n < 25:
		return []Step{{Conn: name, Op: "delete", Path: dir + one(g, "/zookeeper_limits", "/zookeeper_stats"),
			Version: -1}}
	case n < 40:
		return []Step{{Conn: name, Op: "setData", Path: dir + "/zookeeper_limits", Data: []byte(one(g, limits...)),
			Version: g.version()}}
	case n < 50:
		stats := fmt.Sprintf("count=%d,bytes=%d", g.rng.IntN(6), g.rng.IntN(10))
		return []Step{{Conn: name, Op: "setData", Path: dir + "/zookeeper_stats", Data: []byte(stats),
			Version: g.version()}}
	}
	var list []Step
	create := func(path, data string) {
		list = append(list, Step{Conn: name, Op: "create", Path: path, Data: []byte(data), ACL: open,
			Joined: len(list) > 0})
	}
	if strings.Count(path, "/") > 1 {
		create(dir[:strings.LastIndex(dir, "/")], "")
	}
	create(dir, "")
	create(dir+"/zookeeper_limits", one(g, limits...))
	create(dir+"/zookeeper_stats", "count=-1,bytes=-1")
	return append(list, Step{Conn: name, Op: "getData", Path: dir + "/zookeeper_stats", Joined: true})
}

const open = "31:world:anyone"

var acls = []string{
	"1:world:anyone", "2:world:anyone", "4:world:anyone", "8:world:anyone", "16:world:anyone", "0:world:anyone",
	"15:world:anyone",
	"31:auth:", "31:auth:ignored,1:world:anyone", "31:digest:" + acl.DigestID("u1:p1").ID, "31:digest:" +
		acl.DigestID("u2:p2").ID + ",1:world:anyone",
	"13:digest:" + acl.DigestID("u1:p1").ID + ",31:digest:" + acl.DigestID("u2:p2").ID,
	"31:ip:127.0.0.1", "31:ip:127.0.0.0/8", "31:ip:10.0.0.1", "31:ip:0.0.0.0/0",
	"7:ip:127.0.0.1/31,24:world:anyone",
	"31:world:anyone,31:world:anyone", "63:world:anyone", "-1:world:anyone",
	"null", "", "31:world:somebody", "31:none:x", "31:digest:nocolon", "31:digest:a:b:c", "31:digest:a:",
	"31:digest::b",
	"31:ip:300.1.1.1", "31:ip:127.0.0.1/33", "31:ip:127.0.0.1/-1", "31:ip:::1", "31:super:", "31:sasl:me",
	"31:x509:CN", "31:world", "31:digest",
	"31::", "31:world:anyone,1:none:x",
}

func (g *Generator) acl() string {
	if g.chance(75) {
		return open
	}
	return one(g, acls...)
}

// top() returns a path just below the root.
func (g *Generator) top() string { return "/" + one(g, "a", "b", "c") }

var oddPaths = []string{
	"", "noslash", "/", "/", "//", "/a/", "/a//b", "/.", "/..", "/a/.", "/a/../b", "/./a", "/...", "/.a", "/a.",
	"/a..b",
	"/a\x00b", "/\x00", "/a/\x01", "/\x1f", "/\x7f", "/a/\u0080", "/\u009f", "/\ud7ff", "/\ue000", "/\uf8ff",
	"/\uf900", "/\uffef", "/\ufff0", "/\ufffd",
	"/ü", "/a/日本", "/ ", "/a b", "/%41", "/\u00a0", "/\ufeff", "/\\", "/a/\"",
	"/zookeeper", "/zookeeper/config", "/zookeeper/quota", "/zookeeper/x", "/zookeeper/quota/x",
	"/zookeeper/config/x",
	"/" + strings.Repeat("n", 300), strings.Repeat("/a", 40),
}

// path() chooses a path: mostly of a node that exists, or of one beside or below such a node.
func (g *Generator) path() string {
	switch n := g.rng.IntN(100); {
	case n < 5:
		return one(g, oddPaths...)
	case n < 70 && len(g.nodes) > 0:
		return one(g, g.nodes...)
	case n < 75:
		return one(g, builtin...)
	}
	return g.fresh()
}

// fresh() chooses a path for a new node.
func (g *Generator) fresh() string {
	if len(g.nodes) > 0 && g.chance(60) {
		if p := one(g, g.nodes...); strings.Count(p, "/") < 5 && p != "/" &&
			!strings.HasPrefix(p, "/zookeeper/quota") {
			return p + "/" + one(g, "a", "b", "c", "lock-", "n-")
		}
	}
	return g.top()
}

func (g *Generator) data() []byte {
	switch g.rng.IntN(12) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return []byte("\x00\xff\x80")
	case 3:
		return []byte(strings.Repeat("x", g.rng.IntN(2000)))
	}
	return []byte(one(g, "x", "yy", "zzz"))
}

func (g *Generator) version() int32 {
	if g.chance(60) {
		return -1
	}
	return one[int32](g, 0, 0, 0, 1, 1, 2, 3, 7, -2, math.MaxInt32, math.MinInt32)
}

// mode() says which kind of watch a connection sets on a path. It always says the same for the same
// connection and path, because ZooKeeper 3.8 forgets a persistent watch when another kind is set on its path.
func mode(conn, path string) string {
	h := fnv.New32a()
	h.Write([]byte(conn + path))
	return []string{"once", "once", "once", "persistent", "recursive"}[h.Sum32()%5]
}

// guarded() reports whether a node holds the limits or the counts of a quota. ZooKeeper fails if the text in
// such a node is not well-formed, so these programs write no other text there.
func guarded(path string) bool {
	return strings.HasSuffix(path, "/zookeeper_limits") || strings.HasSuffix(path, "/zookeeper_stats")
}

// Learn records what a step did.
func (g *Generator) Learn(steps []Step, list []got, alive bool) {
	first := &steps[0]
	if first.Op == "connect" || first.Op == "attach" {
		g.known = append(g.known, first.Conn)
	}
	if first.Op == "restart" {
		return
	}
	g.conns[first.Conn] = alive
	for _, s := range steps {
		if s.Watch || s.Op == "addWatch" {
			g.watched[s.Conn] = append(g.watched[s.Conn], s.Path)
		}
	}
	if !alive {
		delete(g.watched, first.Conn)
		delete(g.tokens, first.Conn)
	}
	for _, r := range list {
		if r.step == nil || !succeeded(r.step, r) {
			continue
		}
		d := jute.NewDecoder(r.frame.Body)
		switch {
		case strings.HasPrefix(r.step.Op, "create"):
			path, _ := d.String()
			g.add(path)
		case r.step.Op == "multi":
			for _, op := range r.step.Ops {
				if strings.HasPrefix(op.Op, "create") && !op.sequential() {
					g.add(op.Path)
				}
			}
		}
	}
}

func (g *Generator) add(path string) {
	path = strings.Clone(path)
	if len(g.nodes) < 40 {
		g.nodes = append(g.nodes, path)
	} else {
		g.nodes[g.rng.IntN(len(g.nodes))] = path
	}
}

// Opening returns the steps every program begins with.
func (g *Generator) Opening() []Step {
	var list []Step
	for i, cred := range []string{"", "u1:p1", "u2:p2", Super} {
		if i == 3 && g.chance(50) {
			break
		}
		list = append(list, Step{Conn: connNames[i], Op: "connect", Timeout: 60000, Back: -2})
		if cred != "" {
			list = append(list, Step{Conn: connNames[i], Op: "auth", Scheme: "digest", Cred: cred})
		}
	}
	return list
}

// Episode runs one random program of about n requests from a clean state. It
// returns the program and the first difference.
func (r *Runner) Episode(seed, episode uint64, n int) (Program, error) {
	if err := r.Reset(); err != nil {
		return nil, fmt.Errorf("before episode %d: %w", episode, err)
	}
	g := NewGenerator(seed, episode)
	g.restarts = r.Restart != nil
	var p Program
	do := func(steps []Step) error {
		p = append(p, steps...)
		list, err := r.Do(steps)
		g.Learn(steps, list, r.a.conns[steps[0].Conn] != nil)
		for name := range g.conns {
			g.conns[name] = r.a.conns[name] != nil
		}
		return err
	}
	for _, s := range g.Opening() {
		if err := do([]Step{s}); err != nil {
			return p, err
		}
	}
	for end := r.Ops + n; r.Ops < end; {
		for _, steps := range Program(g.Next()).pieces() {
			if err := do(steps); err != nil {
				return p, err
			}
		}
	}
	return p, nil
}
