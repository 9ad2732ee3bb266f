//go:build stock

package proc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/jute"
)

// writer makes random changes of every kind that the protocol has.
type writer struct {
	conn  *zk.Conn
	rng   *rand.Rand
	paths []string
	top   string
}

var acls = [][]zk.ACL{
	nil,
	{{Perms: jute.PermAll, ID: jute.ID{Scheme: "world", ID: "anyone"}},
		{Perms: 1, ID: jute.ID{Scheme: "ip", ID: "10.1.0.0/16"}}},
	{{Perms: jute.PermAll, ID: jute.ID{Scheme: "digest", ID: "super:" + "xQJmxLMiHGwaqBvst5y6rkB6HQs="}},
		{Perms: 13, ID: jute.ID{Scheme: "world", ID: "anyone"}}},
	{{Perms: jute.PermAll, ID: jute.ID{Scheme: "auth", ID: ""}}},
}

// name() picks a name from a small set, so that later changes meet existing nodes.
func (w *writer) name() string {
	return [...]string{"a", "b", "lock-", "with space", "n" + fmt.Sprint(w.rng.IntN(200))}[w.rng.IntN(5)]
}

func (w *writer) any() string {
	if len(w.paths) == 0 {
		return w.top
	}
	return w.paths[w.rng.IntN(len(w.paths))]
}

func (w *writer) data() []byte {
	switch w.rng.IntN(6) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return []byte(strings.Repeat("x", w.rng.IntN(6000)))
	}
	return fmt.Append(nil, w.rng.IntN(1e6))
}

func (w *writer) create() zk.Create {
	parent := w.top
	if w.rng.IntN(3) > 0 {
		parent = w.any()
	}
	return zk.Create{Path: parent + "/" + w.name(), Data: w.data(), Mode: zk.Mode(w.rng.IntN(7)),
		ACL: acls[w.rng.IntN(len(acls))], TTL: int64(1e6 + w.rng.IntN(1e9))}
}

// step() makes one change, and tells whether the server still answers.
func (w *writer) step(ctx context.Context) bool {
	var err error
	switch k := w.rng.IntN(100); {
	case k < 50:
		op := w.create()
		if (op.Mode == zk.PersistentTTL || op.Mode == zk.PersistentSequentialTTL) && w.rng.IntN(2) == 0 {
			op.Mode = zk.Persistent
		}
		var made zk.Created
		if made, err = w.conn.Create(ctx, op); err == nil {
			w.paths = append(w.paths, made.Path)
		}
	case k < 62:
		_, err = w.conn.Set(ctx, w.any(), w.data(), -1)
	case k < 70:
		_, err = w.conn.SetACL(ctx, w.any(), acls[1+w.rng.IntN(len(acls)-1)], -1)
	case k < 82:
		path := w.any()
		if err = w.conn.Delete(ctx, path, -1); err == nil {
			w.forget(path)
		}
	case k < 84:
		err = w.quota(ctx)
	default:
		err = w.multi(ctx)
	}
	var refused *zk.Error
	return err == nil || errors.As(err, &refused)
}

func (w *writer) forget(path string) {
	for i, p := range w.paths {
		if p == path {
			w.paths[i] = w.paths[len(w.paths)-1]
			w.paths = w.paths[:len(w.paths)-1]
			return
		}
	}
}

// multi() makes a transaction. About half of the transactions fail.
func (w *writer) multi(ctx context.Context) error {
	var ops []zk.Op
	fresh := w.top + "/multi-" + fmt.Sprint(w.rng.Int64())
	for range 1 + w.rng.IntN(4) {
		switch w.rng.IntN(6) {
		case 0:
			ops = append(ops, zk.Check{Path: w.any(), Version: -1})
		case 1:
			ops = append(ops, zk.SetData{Path: w.any(), Data: w.data(), Version: -1})
		case 2:
			ops = append(ops, zk.Create{Path: fresh, Data: w.data()}, zk.Create{
				Path: fresh + "/s", Mode: zk.PersistentSequential}, zk.Delete{Path: fresh + "/s0000000000", Version: -1})
			fresh += "-"
		case 3:
			ops = append(ops, zk.Delete{Path: w.any(), Version: -1})
		default:
			ops = append(ops, w.create())
		}
	}
	_, err := w.conn.Multi(ctx, ops...)
	return err
}

// quota() sets a quota on a node that has none.
func (w *writer) quota(ctx context.Context) error {
	path := "/zookeeper/quota" + w.any()
	if err := w.conn.MakePath(ctx, path, zk.Persistent, nil); err != nil {
		return err
	}
	if _, err := w.conn.Create(ctx, zk.Create{Path: path + "/zookeeper_limits",
		Data: []byte("count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=-1")}); err != nil {
		return err
	}
	_, err := w.conn.Create(ctx, zk.Create{Path: path + "/zookeeper_stats", Data: []byte("count=0,bytes=0")})
	return err
}

// load() opens eight sessions and then makes n changes through all of them at once. Half of the sessions stay
// open, the others are closed. wait() returns when all changes are made, or ctx has ended.
func load(ctx context.Context, t testing.TB, addr string, seed uint64, n int) (wait func()) {
	t.Helper()
	const writers = 8
	var conns [writers]*zk.Conn
	for i := range conns {
		conns[i] = dial(t, addr)
	}
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			w := &writer{conn: c, rng: rand.New(rand.NewPCG(seed, uint64(i))), top: "/top" + fmt.Sprint(i%3)}
			c.Create(ctx, zk.Create{Path: w.top})
			for range n / writers {
				if !w.step(ctx) {
					return
				}
			}
			if i%2 == 0 {
				closing, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				c.Close(closing)
			}
		})
	}
	return wg.Wait
}
