//go:build stock

package stock

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// holder() starts a program with two sessions, `a` and `b`: session `a` holds locks and session `b` waits for
// them. It returns the ids of both once the program is ready.
func holder(t *testing.T, g target, args ...string) map[string]string {
	t.Helper()
	sessions, lines := contending(t, g, args...)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "ready") {
			return sessions
		}
		t.Errorf("%s: %s", args[0], lines.Text())
	}
	t.Fatalf("%s ended early", args[0])
	return nil
}

// contending() starts a program as holder() does, but does not wait until it is ready. It returns the
// program's sessions and its later output.
func contending(t *testing.T, g target, args ...string) (sessions map[string]string, lines *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "ZK="+g.String())
	cmd.Stderr = os.Stderr
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		in.Close() // the program ends with its input
		cmd.Process.Kill()
		cmd.Wait()
	})
	sessions, lines = map[string]string{}, bufio.NewScanner(out)
	for len(sessions) < 2 && lines.Scan() {
		w := strings.Fields(lines.Text())
		must.That(t, len(w) == 3 && w[0] == "session", "%s: %s", args[0], lines.Text())
		sessions[w[1]] = "0x" + w[2]
	}
	must.That(t, len(sessions) == 2, "%s ended early", args[0])
	return sessions, lines
}

// viewed is one server with its lock view.
type viewed struct {
	t    *testing.T
	g    target
	base string
}

func startViewed(t *testing.T) *viewed {
	t.Helper()
	o := generous()
	o.Kind, o.Nodes = cluster.Zlockd, 1
	e := cluster.Run(t, o)
	return &viewed{t, target{addrs: strings.Split(e.Addrs(), ","), kind: cluster.Zlockd, ensemble: e},
		"http://" + e.Servers[0].Admin}
}

// lock is a lock as the view shows it.
type lock struct {
	Path         string
	Kind         string
	Layouts      []string
	Recipe       string
	Holders      []lockEntry
	Waiters      []lockEntry
	Participants []lockEntry
}

type lockEntry struct{ Node, Session, Token, Maker string }

func (v *viewed) get(path string, into any) bool {
	v.t.Helper()
	r := must.Get(http.Get(v.base + path))(v.t)
	defer r.Body.Close()
	return json.NewDecoder(r.Body).Decode(into) == nil && r.StatusCode == http.StatusOK
}

// wants() waits until the view shows a lock with exactly these holders and waiters, each in this order.
func (v *viewed) wants(path, kind, layout string, holders, waiters []string) {
	v.t.Helper()
	var l lock
	sessions := func(list []lockEntry) (s []string) {
		for _, e := range list {
			s = append(s, e.Session)
		}
		return s
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		l = lock{}
		if v.get("/locks"+path, &l) && l.Kind == kind && fmt.Sprint(l.Layouts) == "["+layout+"]" &&
			fmt.Sprint(sessions(append(l.Holders, l.Participants...))) == fmt.Sprint(holders) &&
			fmt.Sprint(sessions(l.Waiters)) == fmt.Sprint(waiters) {
			return
		}
	}
	v.t.Errorf("%s is %+v; want %s %s, held by %v, waited for by %v", path, l, kind, layout, holders, waiters)
}

// TestLocksOfStockRecipes checks that each recipe of each library is recognised, with the right holder and
// the right order.
func TestLocksOfStockRecipes(t *testing.T) {
	beside(t)
	v := startViewed(t)
	need(t, "/usr/bin/python3", "/usr/lib/python3/dist-packages/kazoo/client.py",
		"/usr/share/java/zookeeper-recipes-lock.jar")
	script := must.Get(filepath.Abs("testdata/kazoo/hold.py"))(t)
	cur := holder(t, v.g, javaDriver(t, "LockHolder")...)
	kz := holder(t, v.g, "/usr/bin/python3", "-B", script)
	for _, r := range []struct {
		path, kind, layout string
		by                 map[string]string
		waiters            bool
	}{
		{"/cur/mutex", "lock", "curator", cur, true},
		{"/cur/rw", "rwlock", "curator", cur, true},
		{"/cur/sem", "semaphore", "curator", cur, true},
		{"/cur/multi/1", "lock", "curator", cur, true},
		{"/cur/multi/2", "lock", "curator", cur, false},
		{"/cur/latch", "latch", "curator", cur, true},
		{"/cur/selector", "lock", "curator", cur, true},
		{"/cur/x", "lock", "x", cur, true},
		{"/kz/lock", "lock", "kazoo", kz, true},
		{"/kz/rw", "rwlock", "kazoo", kz, true},
		{"/kz/sem", "semaphore", "kazoo", kz, true},
		{"/kz/election", "lock", "kazoo", kz, true},
		{"/kz-master", "simple", "lone", kz, true},
	} {
		t.Run(strings.TrimPrefix(r.path, "/"), func(t *testing.T) {
			v := &viewed{t, v.g, v.base}
			var waiters []string
			if r.waiters {
				waiters = []string{r.by["b"]}
			}
			v.wants(r.path, r.kind, r.layout, []string{r.by["a"]}, waiters)
		})
	}
	t.Run("kz/party", func(t *testing.T) {
		v := &viewed{t, v.g, v.base}
		var l lock
		must.Await(t, "party", time.Minute, func() bool {
			return v.get("/locks/kz/party", &l) && l.Kind == "party" &&
				len(l.Participants) == 2
		})
	})
	t.Run("go-zookeeper", func(t *testing.T) {
		v := &viewed{t, v.g, v.base}
		s := &goSuite{target: v.g}
		a, b := s.connect(t), s.connect(t)
		must.OK(t, zk.NewLock(a.Conn, "/golock", zk.WorldACL(zk.PermAll)).Lock())
		go zk.NewLock(b.Conn, "/golock", zk.WorldACL(zk.PermAll)).Lock()
		v.wants("/golock", "lock", "curator", []string{fmt.Sprintf("0x%x", a.SessionID())}, []string{
			fmt.Sprintf("0x%x", b.SessionID())})
		if l := (lock{}); !v.get("/locks/golock", &l) || l.Recipe != "go-zookeeper lock" {
			t.Errorf("%+v", l)
		}
	})
}

// TestLockPage uses the page as an operator would, while clients of four libraries hold and wait for locks.
// It reads the table, sees a deadlock and a hand-over, breaks a lock, and uses the page with only the
// keyboard.
func TestLockPage(t *testing.T) {
	beside(t)
	v := startViewed(t)
	need(t, "/usr/bin/python3", "/usr/lib/python3/dist-packages/kazoo/client.py")
	script := must.Get(filepath.Abs("testdata/kazoo/hold.py"))(t)
	cur := holder(t, v.g, javaDriver(t, "LockHolder")...)
	holder(t, v.g, "/usr/bin/python3", "-B", script)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dial := func() *client.Client {
		c := must.Get(client.Dial(ctx, v.g.String()))(t)
		t.Cleanup(func() { c.Close(context.Background()) })
		return c
	}
	one, two := dial(), dial()
	orders := must.Get(one.Mutex("/shop/orders").Lock(client.Task(ctx, "billing"),
		client.WithReason("billing run")))(t)
	must.Get(two.Mutex("/shop/stock").Lock(client.Task(ctx, "stocktaking"),
		client.WithReason("stocktaking")))(t)
	go two.Mutex("/shop/orders").Lock(client.Task(ctx, "stocktaking"), client.WithReason("stocktaking"))

	b := startBrowser(t)
	b.log("performance")
	b.open(v.base + "/?tab=locks")
	shows := func(words ...string) func() bool {
		return func() bool {
			text := b.text()
			for _, w := range words {
				if !strings.Contains(text, w) {
					return false
				}
			}
			return true
		}
	}
	must.Await(t, "the locks of every library", time.Minute, shows("/cur/mutex", "/kz/lock", "/shop/orders",
		"Curator mutex",
		"kazoo lock", "zlock lock", "kz-master"))

	// The table follows changes.
	b.open(v.base + "/?tab=lock&path=/shop/orders")
	must.Await(t, "holder and waiter", time.Minute, shows("1 hold, 1 wait", "billing run", "stocktaking"))

	// The deadlock begins while the page is open.
	b.open(v.base + "/?tab=graph")
	must.Await(t, "no deadlock yet", time.Minute, shows("No suspected deadlock"))
	waiting, give := context.WithCancel(client.Task(ctx, "billing"))
	go one.Mutex("/shop/stock").Lock(waiting, client.WithReason("billing run"))
	must.Await(t, "the deadlock", time.Minute, shows("Suspected deadlock", "in a cycle", "/shop/orders",
		"/shop/stock"))
	expect.Equal(t, b.js("return document.querySelectorAll('svg rect.cycle').length"), "2",
		"boxes of the picture are in a cycle")
	pictures(t, b)
	give()
	must.Await(t, "the deadlock to be over", time.Minute, shows("No suspected deadlock"))

	// The lock is handed over.
	b.open(v.base + "/?tab=lock&path=/shop/orders")
	must.Await(t, "holder", time.Minute, shows("1 hold, 1 wait"))
	must.OK(t, orders.Unlock(ctx))
	must.Await(t, "the hand-over", time.Minute, shows("1 hold, 0 wait", "stocktaking"))

	breakIt(t, v, b, cur)
	keyboard(t, v, b)
	narrow(t, v, b)
	foreign(t, v, b)
}

// breakIt breaks a lock of Curator by its token. A second attempt with the old token is refused.
func breakIt(t *testing.T, v *viewed, b *browser, cur map[string]string) {
	t.Helper()
	b.open(v.base + "/?tab=lock&path=/cur/mutex")
	must.Await(t, "the mutex", time.Minute, func() bool {
		return b.js("return document.querySelectorAll('button[data-act=break]').length") == "2"
	})
	b.js("document.querySelector('button[data-act=break]').click()")
	b.js("document.getElementById('act-password').value = 'wrong'; document.getElementById('act-dry').click()")
	said := func(words string) {
		t.Helper()
		must.Await(t, words, time.Minute, func() bool {
			return strings.Contains(b.js("return document.getElementById('act-out').innerText"), words)
		})
	}
	said("not the super user's password")
	b.js("document.getElementById('act-password').value = 'test'; document.getElementById('act-dry').click()")
	said(cur["b"] + " 127.0.0.1: gets the lock")
	v.wants("/cur/mutex", "lock", "curator", []string{cur["a"]}, []string{cur["b"]}) // dry run: no change
	b.js("document.getElementById('act-do').click()")
	said("Done: remove /cur/mutex/")
	v.wants("/cur/mutex", "lock", "curator", []string{cur["b"]}, nil)
	// Repeat the action with the password, which the page has cleared. The node no longer exists.
	b.js("document.getElementById('act-password').value = 'test'; document.getElementById('act-dry').click()")
	said("has no contender")
	b.js("document.getElementById('act-close').click()")

	// Break a lock that has a newer hold than the page shows.
	var l lock
	must.That(t, v.get("/locks/kz/lock", &l) && len(l.Holders) == 1, "%+v", l)
	b.open(v.base + "/?tab=lock&path=/kz/lock")
	must.Await(t, "kazoo's lock", time.Minute, func() bool {
		return b.js("return document.querySelectorAll('button[data-act=break]').length") == "2"
	})
	b.js("const x = document.querySelector('button[data-act=break]'); x.dataset.token = '1'; x.click()")
	b.js("document.getElementById('act-password').value = 'test'; document.getElementById('act-dry').click()")
	said("the token is old")
	b.js("document.getElementById('act-close').click()")
}

// keyboard() uses the page only by Tab and Enter.
func keyboard(t *testing.T, v *viewed, b *browser) {
	t.Helper()
	b.open(v.base + "/")
	must.Await(t, "the overview", time.Minute, func() bool { return strings.Contains(b.text(), "Overview") })
	b.keys(keyTab)
	expect.Equal(t, b.js("return document.activeElement.innerText"), "Skip to the contents",
		"the first stop")
	stops := []string{}
	for range 12 {
		b.keys(keyTab)
		stops = append(stops, strings.TrimSpace(b.js("return document.activeElement.innerText.split('\\n')[0]")))
	}
	for _, want := range []string{"Pause", "Overview", "Locks", "Wait-for graph", "Ended sessions", "Tree"} {
		expect.Has(t, strings.Join(stops, "|"), want, "is not reached by the keyboard: %q", stops)
	}
	b.js("document.querySelector('nav a[data-tab=locks]').focus()")
	b.keys(keyEnter)
	must.Await(t, "locks by the keyboard", time.Minute, func() bool {
		return b.js("return document.querySelector('h2').innerText") == "Locks"
	})
	// A table that the page redraws keeps the focus.
	b.js("document.querySelector('a[data-key=\"l-/cur/sem\"]').focus(); " +
		"document.querySelector('#content').dataset.old = 1")
	s := &goSuite{target: v.g}
	s.connect(t).mustCreate(t, "/touched")
	must.Get(s.connect(t).Create("/touched/lock-", nil, zk.FlagEphemeral|zk.FlagSequence,
		zk.WorldACL(zk.PermAll)))(t)
	must.Await(t, "a new table", time.Minute, func() bool {
		return b.js("return String(document.querySelector('#content').dataset.old)") == "undefined"
	})
	expect.Equal(t, b.js("return document.activeElement.dataset.key"), "l-/cur/sem", "the focus went to")
	// Pause the page by the keyboard. The page must say to screen readers that it is paused.
	b.js("document.getElementById('pause').focus()")
	b.keys(keyEnter)
	if b.js("return document.getElementById('live').innerText") != "paused" ||
		b.js("return document.getElementById('pause').getAttribute('aria-pressed')") != "true" {
		t.Error("it is not paused")
	}
	// Escape closes a dialogue.
	b.open(v.base + "/?tab=lock&path=/cur/rw")
	b.js("document.querySelector('button[data-act=break]').click()")
	b.keys(keyEscape)
	expect.Equal(t, b.js("return document.getElementById('act').open"), "false", "Escape does")
	if n := b.js("return [...document.querySelectorAll('input,select')].filter(e => e.type !== 'hidden' && " +
		"!e.labels.length).length"); n != "0" {
		t.Errorf("%s fields have no label", n)
	}
	expect.Equal(t, b.js("return document.querySelectorAll('th:not([scope])').length"), "0",
		"headings of tables have no scope")
}

// narrow() looks at every tab in the width of a telephone.
func narrow(t *testing.T, v *viewed, b *browser) {
	t.Helper()
	b.width(320)
	for _, tab := range []string{"overview", "locks", "lock&path=/cur/mutex", "graph", "sessions", "ended",
		"tree&path=/cur"} {
		b.open(v.base + "/?tab=" + tab)
		w, err := strconv.Atoi(b.js("return document.scrollingElement.scrollWidth"))
		expect.That(t, err == nil && w <= 320, "%s is %d pixels wide (%v)", tab, w, err)
	}
	b.width(1200)
}

// foreign() checks the browser's log: the page loaded nothing from another origin, and had no errors.
func foreign(t *testing.T, v *viewed, b *browser) {
	t.Helper()
	for _, line := range b.log("browser") {
		// The test asks for actions that the server refuses. The browser logs each refusal as an error.
		if strings.HasPrefix(line, "SEVERE") &&
			!strings.Contains(line, "/actions/break - Failed to load resource") {
			t.Errorf("console: %s", line)
		}
	}
	requests := 0
	for _, line := range b.log("performance") {
		_, body, _ := strings.Cut(line, " ")
		var m struct {
			Message struct {
				Method string
				Params struct{ Request struct{ URL string } }
			}
		}
		if json.Unmarshal([]byte(body), &m) != nil || m.Message.Method != "Network.requestWillBeSent" {
			continue
		}
		requests++
		if url := m.Message.Params.Request.URL; !strings.HasPrefix(url, v.base+"/") &&
			!strings.HasPrefix(url, "data:") {
			t.Errorf("the page asked for %s", url)
		}
	}
	expect.That(t, requests >= 10, "only %d requests were noted", requests)
}

// pictures() takes a screenshot in each colour scheme. It writes them to ZLOCKD_SCREENSHOTS if that is set.
func pictures(t *testing.T, b *browser) {
	t.Helper()
	dir := os.Getenv("ZLOCKD_SCREENSHOTS")
	if dir == "" {
		dir = t.TempDir()
	}
	seen := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		seen[b.js("return getComputedStyle(document.body).backgroundColor")] = scheme
		b.shot(filepath.Join(dir, "lock-view-"+scheme+".png"))
	}
	expect.Equal(t, len(seen), 2, "the schemes look alike: %v", seen)
	b.scheme("light")
}
