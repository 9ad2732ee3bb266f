//go:build stock

package stock

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// trouble is a cluster in which much is wrong: a server is dead, a lock is held twice, two sessions wait for
// each other, and 444 contenders wait for 100 of 300 locks with long names.
func trouble(t *testing.T) *viewed {
	t.Helper()
	o := generous()
	o.Kind, o.Nodes = cluster.Zlockd, 3
	e := cluster.Run(t, o)
	g := target{addrs: strings.Split(e.Addrs(), ","), kind: cluster.Zlockd, ensemble: e}
	s := &goSuite{target: g}
	a, b := s.connect(t), s.connect(t)
	put := func(c *zk.Conn, path string) {
		for i := 1; i < len(path); i++ {
			if path[i] == '/' {
				_, err := c.Create(path[:i], nil, 0, zk.WorldACL(zk.PermAll))
				must.That(t, err == nil || err == zk.ErrNodeExists, "%s: %v", path[:i], err)
			}
		}
		must.Get(c.Create(path, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll)))(t)
	}
	const department = "/applications/with-a-long-name/of-the-ordering-department/"
	const curator = "/_c_00000001-1111-4111-8111-111111111111-lock-"
	for i := range 300 {
		put(a.Conn, fmt.Sprintf("%s%03d%s", department, i, curator))
	}
	for i := range 444 {
		put(b.Conn, fmt.Sprintf("%s%03d%s", department, i%100, curator))
	}
	put(a.Conn, "/mixed"+curator)
	put(b.Conn, "/mixed/f65a711639a74cab9e5222dd97208552__lock__")
	put(a.Conn, "/ring/x"+curator)
	put(b.Conn, "/ring/y"+curator)
	put(a.Conn, "/ring/y"+curator)
	put(b.Conn, "/ring/x"+curator)
	v := &viewed{t, g, "http://" + e.Servers[0].Admin}
	e.Servers[2].Kill()
	return v
}

// TestThePageSaysFirstWhatIsWrong looks at the page in a browser, in the widths of a desktop screen and of a
// telephone.
func TestThePageSaysFirstWhatIsWrong(t *testing.T) {
	beside(t)
	b := startBrowser(t)
	v := trouble(t)
	// The lower edge of the first element for `selector` with the text `with`; -1: there is none.
	bottom := func(selector, with string) int {
		n, err := strconv.Atoi(b.js(`const e = [...document.querySelectorAll(arguments[0])].find(e =>
			e.innerText.includes(arguments[1])); return e ? Math.ceil(e.getBoundingClientRect().bottom) : -1`,
			selector, with))
		must.OK(t, err)
		return n
	}
	number := func(script string) int { return must.Get(strconv.Atoi(b.js(script)))(t) }
	shot := func(name string) {
		if dir := os.Getenv("ZLOCKD_SCREENSHOTS"); dir != "" {
			b.shot(filepath.Join(dir, name+".png"))
		}
	}
	for _, c := range []struct {
		width  int
		scheme string
	}{{1280, "light"}, {1280, "dark"}, {375, "light"}, {375, "dark"}} {
		t.Run(fmt.Sprint(c.width, c.scheme), func(t *testing.T) {
			b.width(c.width)
			b.scheme(c.scheme)
			must.Await(t, "the dead server is missed", time.Minute, func() bool {
				b.open(v.base + "/")
				return bottom(".now li", "Server 3 is not reached") >= 0
			})
			for _, text := range []string{"Server 3 is not reached", "1 suspected deadlock",
				"/mixed is held twice"} {
				at := bottom(".now li", text)
				expect.That(t, at >= 0 && at <= 800, "%q ends at %d", text, at)
			}
			expect.That(t, bottom("caption", "Longest waits") >= 0, "no waits are told")
			shot(fmt.Sprint("overview-", c.width, "-", c.scheme))
			b.open(v.base + "/?tab=locks&limit=300")
			rows := number("return document.querySelectorAll('table.locks tbody tr').length")
			expect.That(t, rows >= 300, "%d locks", rows)
			if c.width == 375 {
				high := number(`const rows = [...document.querySelectorAll('table.locks tbody tr')];
				return Math.max(...rows.map(e => {
					const one = parseFloat(getComputedStyle(e).lineHeight);
					return Math.round((e.getBoundingClientRect().height - 11) / one); }))`)
				expect.That(t, high <= 2, "a lock has %d lines", high)
			}
			shot(fmt.Sprint("locks-", c.width, "-", c.scheme))
			b.open(v.base + "/?tab=graph")
			red := number("return document.querySelectorAll('svg rect.cycle').length")
			expect.Equal(t, red, 2, "parties of the deadlock")
			first := b.js("return document.querySelector('svg rect').getAttribute('class')")
			expect.Equal(t, first, "cycle", "the first party is")
			if c.width == 1280 {
				right := number(`const e = document.querySelector('svg');
					return Math.ceil(e.getBoundingClientRect().right)`)
				expect.That(t, right <= 1280, "the picture ends at %d", right)
			}
			shot(fmt.Sprint("graph-", c.width, "-", c.scheme))
			b.open(v.base + "/?tab=lock&path=/applications/with-a-long-name/of-the-ordering-department/001")
			right := number(`const all = [...document.querySelectorAll('button[data-act=break]')];
				return Math.ceil(Math.max(...all.map(e => e.getBoundingClientRect().right), 0))`)
			expect.That(t, right > 0 && right <= c.width, "actions end at %d", right)
			shot(fmt.Sprint("lock-", c.width, "-", c.scheme))
			wide := number("return document.scrollingElement.scrollWidth")
			expect.That(t, wide <= c.width, "the page is %d wide", wide)
		})
	}
}
