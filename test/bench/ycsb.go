package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/test/bench/measure"
	"github.com/zlockd/zlockd/test/wire"
)

// record is the data of a key of the YCSB workloads: 64 bytes.
var record = []byte(strings.Repeat("0123456789abcdef", 4))

// ycsb is one of the workloads of the Yahoo! Cloud Serving Benchmark over nodes that all connections
// share. Which key an operation takes follows a zipfian distribution with the constant 0.99.
type ycsb struct {
	letter         string
	reads, inserts float64 // share of all operations; the others write
}

var ycsbs = []ycsb{{"a", 0.5, 0}, {"b", 0.95, 0}, {"c", 1, 0}, {"d", 0.95, 0.05}}

func (y ycsb) help() string {
	if y.inserts > 0 {
		return "YCSB D: 95 % read a key, mostly one of the newest, 5 % add a key of 64 bytes"
	}
	return fmt.Sprintf("YCSB %s: %.0f %% read a key of 64 bytes, the rest write it; few keys take most of it",
		strings.ToUpper(y.letter), 100*y.reads)
}

// points returns the workload with many requests in flight, and at half load.
func (y ycsb) points() (list []point) {
	for _, f := range []shape{{conns: 16, depth: 64}, {conns: 64, depth: 1, half: true}} {
		f.name = "ycsb-" + y.letter
		p := f.point(y.help())
		p.open = func(c *config, s *side) (runner, error) {
			k, err := newKeys(c, s)
			if err != nil {
				return runner{}, err
			}
			f := f // of this side
			f.build = func(c *wire.Pipe, dir string, _ int) (workload, func() error, error) {
				w := &ycsbWork{y, k, createWork{dir: dir, data: record}}
				return w, func() error { return w.own.remove(c) }, nil
			}
			return runner{run: func() (sample, error) { return f.measure(c, s) }, close: k.remove}, nil
		}
		list = append(list, p)
	}
	return list
}

// ycsbWork is one connection's share of the operations.
type ycsbWork struct {
	ycsb
	keys *keys
	own  createWork // the keys that this connection has added
}

func (w *ycsbWork) start(c *wire.Pipe, slot int) {
	switch p, i := rand.Float64(), w.keys.Next(); {
	case p < w.inserts:
		w.own.start(c, slot)
	case p >= w.inserts+w.reads:
		c.Set(w.keys.path(i), record)
	case w.inserts == 0:
		c.Get(w.keys.path(i), false)
	case i < w.own.n: // the newest: one session's requests keep their order
		c.Get(w.own.path(w.own.n-1-i), false)
	default:
		c.Get(w.keys.path(i-w.own.n), false)
	}
}

func (w *ycsbWork) step(*wire.Pipe, int, *wire.Answer) bool { return true }

// keys are the shared nodes, a thousand in a directory.
type keys struct {
	*measure.Zipf
	side *side
	root string
	n    int
}

const keysDir = 1000

func newKeys(c *config, s *side) (*keys, error) {
	n := max(c.znodes/10, 10)
	k := &keys{measure.NewZipf(n), s, c.unique("ycsb"), n}
	conn, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := makeNodes(conn, k.dirs()); err != nil {
		return nil, err
	}
	return k, bulk(conn, k.n, func(i int) { conn.Create(k.path(i), record, 0) })
}

func (k *keys) dirs() []string {
	return append([]string{k.root}, nodes(k.root, (k.n+keysDir-1)/keysDir)...)
}

// path names a key. Keys that are often taken do not stand side by side.
func (k *keys) path(i int) string {
	i = i * 7919 % k.n // a prime, so that no two keys meet
	return k.root + "/n" + strconv.Itoa(i/keysDir) + "/k" + strconv.Itoa(i)
}

func (k *keys) remove() {
	conn, err := k.side.dial()
	if err != nil {
		return
	}
	defer conn.Close()
	if bulk(conn, k.n, func(i int) { conn.Delete(k.path(i)) }) == nil {
		dirs := k.dirs()
		slices.Reverse(dirs)
		removeNodes(conn, dirs)
	}
}
