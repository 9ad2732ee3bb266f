package view_test

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/must"
)

var figures = flag.Bool("figures", false, "measure what docs/lock-view.md tells")

// crowd makes so many locks of so many contenders each.
func (r *rig) crowd(root string, nlocks, each int) {
	r.Helper()
	const conns = 4
	var wg sync.WaitGroup
	for n := range conns {
		c := r.session()
		if _, err := c.Create(root, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && err != zk.ErrNodeExists {
			r.Fatal(err)
		}
		wg.Go(func() {
			for l := n; l < nlocks; l += conns {
				dir := fmt.Sprintf("%s/l%05d", root, l)
				ops := []any{&zk.CreateRequest{Path: dir, Acl: zk.WorldACL(zk.PermAll)}}
				for i := range each {
					ops = append(ops, &zk.CreateRequest{Path: dir + "/lock-",
						Data:  []byte(`{"v":1,"host":"web-12","pid":4711,"reason":"nightly"}`),
						Flags: zk.FlagEphemeral | zk.FlagSequence, Acl: zk.WorldACL(zk.PermAll)})
					if len(ops) == 500 || i == each-1 {
						if _, err := c.Multi(ops...); err != nil {
							r.Error(err)
							return
						}
						ops = ops[:0]
					}
				}
			}
		})
	}
	wg.Wait()
}

// cold measures the first answer after a change, again and again.
func (r *rig) cold(c *zk.Conn, path string) (median, worst time.Duration, bytes int) {
	r.Helper()
	var all []time.Duration
	for range 5 {
		must.Get(c.Set("/touch", nil, -1))(r)
		time.Sleep(2 * time.Second) // until the last scan has served its time
		begun := time.Now()
		a, b := r.request("GET", path, map[string]string{"Accept-Encoding": "gzip"}, "")
		all = append(all, time.Since(begun))
		must.Equal(r, a.StatusCode, http.StatusOK, "%s: %s", path, a.Status)
		bytes = len(b)
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)-1], bytes
}

func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("measures for minutes; run with -figures")
	}
	for _, size := range []struct{ locks, each int }{{10_000, 3}, {10_000, 10}, {1, 100_000}} {
		r := newRig(t)
		c := r.session()
		r.node(c, "/touch", "", 0)
		r.crowd("/crowd", size.locks, size.each)
		for _, path := range []string{"/?tab=locks", "/locks", "/wait-graph", "/locks/crowd/l00000"} {
			median, worst, n := r.cold(c, path)
			t.Logf("%d locks of %d: %-20s median %v, worst %v, %d bytes zipped", size.locks, size.each, path,
				median.Round(100*time.Microsecond), worst.Round(100*time.Microsecond), n)
		}
	}
}
