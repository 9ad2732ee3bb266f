package tree_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
)

// filled() returns a tree of n nodes of 100 bytes in directories of 1000, with paths of 23 bytes, and the
// next zxid.
func filled(tb testing.TB, n int) (*tree.Tree, int64) {
	tr := tree.New()
	c := &tree.Change{Zxid: 1, Session: 1}
	data := strings.Repeat("x", 100)
	var reply []byte
	for i := range n {
		if i%1000 == 0 {
			reply = do(tb, tr, c, jute.OpCreate, createBody(benchPath(i)[:11], "", 0), reply)
		}
		reply = do(tb, tr, c, jute.OpCreate, createBody(benchPath(i), data, 0), reply)
	}
	return tr, c.Zxid
}

func benchPath(i int) string { return fmt.Sprintf("/dir%07d/node%06d", i/1000, i%1000) }

func do(tb testing.TB, tr *tree.Tree, c *tree.Change, op jute.OpCode, body, reply []byte) []byte {
	c.Zxid++
	c.Events = c.Events[:0]
	reply, code, _ := tr.Apply(c, op, body, reply[:0])
	must.Equal(tb, code, jute.OK, "%v", op)
	return reply
}

func setBody(path, data string) []byte {
	return jute.AppendInt(jute.AppendString(jute.AppendString(nil, path), data), -1)
}

func BenchmarkCreateAndDelete(b *testing.B) {
	tr, zxid := filled(b, 100_000)
	c := &tree.Change{Zxid: zxid, Session: 1}
	bodies, deletes := make([][]byte, 1000), make([][]byte, 1000)
	for i := range bodies {
		p := benchPath(i*100+7) + "x"
		bodies[i], deletes[i] = createBody(p, strings.Repeat("x", 100), 0), pathVersion(p)
	}
	reply := make([]byte, 0, 1024)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		reply = do(b, tr, c, jute.OpCreate, bodies[i%1000], reply)
		reply = do(b, tr, c, jute.OpDelete, deletes[i%1000], reply)
	}
}

// BenchmarkLock measures the operations of a lock: create an ephemeral sequential node, list the waiters,
// delete the node.
func BenchmarkLock(b *testing.B) {
	for name, oneLayout := range map[string]bool{"any layout": false, "one layout": true} {
		b.Run(name, func(b *testing.B) { lock(b, oneLayout) })
	}
}

func lock(b *testing.B, oneLayout bool) {
	tr := tree.New()
	c := &tree.Change{Session: 1, OneLayout: oneLayout}
	do(b, tr, c, jute.OpCreate, createBody("/lock", "", 0), nil)
	body := createBody("/lock/_c_6f1ed002-ab5c-4b1f-a0ce-75ab2e1ed1a2-lock-", "", jute.FlagEphemeralSequential)
	reply, list := make([]byte, 0, 1024), make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		reply = do(b, tr, c, jute.OpCreate, body, reply)
		d := jute.NewDecoder(reply)
		path, _ := d.String()
		list, _ = tr.AppendChildren(list[:0], nil, "/lock")
		del := jute.AppendInt(jute.AppendString(list[:0], path), -1)
		reply = do(b, tr, c, jute.OpDelete, del, reply)
	}
}

func BenchmarkSetData(b *testing.B) {
	tr, zxid := filled(b, 100_000)
	c := &tree.Change{Zxid: zxid}
	bodies := make([][]byte, 1000)
	for i := range bodies {
		bodies[i] = setBody(benchPath(i*100), strings.Repeat("y", 100))
	}
	reply := make([]byte, 0, 1024)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		reply = do(b, tr, c, jute.OpSetData, bodies[i%1000], reply)
	}
}

func BenchmarkMulti(b *testing.B) {
	tr, zxid := filled(b, 10_000)
	c := &tree.Change{Zxid: zxid}
	body := append(jute.AppendMultiHeader(nil, jute.OpCheck, false, -1), pathVersion(benchPath(1))...)
	body = append(jute.AppendMultiHeader(body, jute.OpSetData, false, -1), setBody(benchPath(2), "12345")...)
	body = append(jute.AppendMultiHeader(body, jute.OpSetData, false, -1), setBody(benchPath(3), "12345")...)
	body = jute.AppendMultiHeader(body, jute.OpError, true, -1)
	reply := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		reply = do(b, tr, c, jute.OpMulti, body, reply)
	}
}

func BenchmarkReads(b *testing.B) {
	tr, _ := filled(b, 100_000)
	paths := make([]string, 1000)
	for i := range paths {
		paths[i] = benchPath(i * 100)
	}
	for name, f := range benchReads {
		b.Run(name, func(b *testing.B) {
			buf := make([]byte, 0, 64<<10)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				f(tr, buf, paths[i%1000])
			}
		})
	}
}

var benchReads = map[string]func(t *tree.Tree, b []byte, path string){
	"exists":        func(t *tree.Tree, b []byte, p string) { t.AppendExists(b, benchIDs, p) },
	"getData":       func(t *tree.Tree, b []byte, p string) { t.AppendData(b, benchIDs, p) },
	"getACL":        func(t *tree.Tree, b []byte, p string) { t.AppendACL(b, benchIDs, p) },
	"getChildren":   func(t *tree.Tree, b []byte, p string) { t.AppendChildren(b, benchIDs, p[:11]) },
	"getChildren2":  func(t *tree.Tree, b []byte, p string) { t.AppendChildrenStat(b, benchIDs, p[:11]) },
	"descendants":   func(t *tree.Tree, b []byte, p string) { t.AppendChildrenNumber(b, benchIDs, "/") },
	"missing":       func(t *tree.Tree, b []byte, p string) { t.AppendData(b, benchIDs, "/none/here") },
	"getEphemerals": func(t *tree.Tree, b []byte, p string) { t.AppendEphemerals(b, 1, "/") },
}

var benchIDs = []jute.ID{{Scheme: "ip", ID: "10.0.0.1"}, acl.DigestID("u1:p1")}

func TestReadsDoNotAllocate(t *testing.T) {
	tr, zxid := filled(t, 5000)
	c := &tree.Change{Zxid: zxid, Session: 1, IDs: benchIDs}
	acl := []jute.ACL{{Perms: 31, ID: jute.ID{Scheme: "ip", ID: "10.0.0.0/8"}}, {Perms: 31, ID: benchIDs[1]}}
	guarded := jute.AppendACL(jute.AppendString(jute.AppendString(nil, "/dir0000000/guarded"), "x"), acl)
	do(t, tr, c, jute.OpCreate, jute.AppendInt(guarded, jute.FlagEphemeral), nil)
	multi := jute.AppendBool(jute.AppendString(jute.AppendMultiHeader(nil, jute.OpGetData, false, -1),
		benchPath(7)), false)
	multi = jute.AppendMultiHeader(multi, jute.OpError, true, -1)
	buf := make([]byte, 0, 64<<10)
	for name, f := range benchReads {
		if name == "getEphemerals" {
			continue // this request sorts the list, because clients print the list in its order, and so it allocates
		}
		for _, p := range []string{benchPath(4321), "/dir0000000/guarded"} {
			n := testing.AllocsPerRun(100, func() { f(tr, buf, p) })
			expect.That(t, n <= 0, "%s of %s: %v allocations", name, p, n)
		}
	}
	n := testing.AllocsPerRun(100, func() { tr.AppendMultiRead(buf, benchIDs, multi) })
	expect.That(t, n <= 0, "multiRead: %v allocations", n)
}

// BenchmarkMillion builds a million nodes. It reports bytes on the heap for each node, the time of a snapshot
// and of a restore, and for how long a chunk of 64 nodes keeps writers out.
func BenchmarkMillion(b *testing.B) {
	for b.Loop() {
		before := heap()
		start := time.Now()
		tr, _ := filled(b, 1_000_000)
		b.ReportMetric(float64(time.Since(start).Nanoseconds())/1e6, "create-ns/node")
		n := float64(tr.Count())
		b.ReportMetric(float64(heap()-before)/n, "bytes/node")

		s := tr.StartSnapshot()
		l := tree.NewLoader()
		var walk, load time.Duration
		var chunks []time.Duration
		var size int
		buf := make([]byte, 0, 512<<10)
		for done := false; !done; {
			start := time.Now()
			buf, done = s.Append(buf[:0], 64)
			d := time.Since(start)
			walk += d
			chunks = append(chunks, d)
			size += len(buf)
			start = time.Now()
			must.OK(b, l.Add(buf))
			load += time.Since(start)
		}
		s.Close()
		start = time.Now()
		again := must.Get(l.Finish())(b)
		load += time.Since(start)
		b.ReportMetric(float64(walk.Nanoseconds())/n, "walk-ns/node")
		slices.Sort(chunks)
		b.ReportMetric(float64(chunks[len(chunks)*99/100].Microseconds()), "chunk-p99-us")
		b.ReportMetric(float64(chunks[len(chunks)-1].Microseconds()), "chunk-max-us")
		b.ReportMetric(float64(load.Nanoseconds())/n, "load-ns/node")
		b.ReportMetric(float64(size)/n, "snapshot-bytes/node")
		start = time.Now()
		runtime.GC()
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "gc-ms")
		runtime.KeepAlive(tr)
		runtime.KeepAlive(again)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
