//go:build stock

package stock

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var deaths = flag.Duration("deaths", time.Minute, "how long clients contend for locks while leaders are killed")

// TestLocksOverDeathsOfLeaders lets Curator, kazoo, go-zookeeper and package client contend for all kinds of
// locks that each of them has, on three servers. Every few seconds it kills the leader with kill -9 and
// starts it again. The referee judges mutual exclusion and the order of fencing tokens. No session may be
// lost.
func TestLocksOverDeathsOfLeaders(t *testing.T) {
	javaDriver(t, "SoakDriver") // compiled now, so that it takes no time from the test
	need(t, "/usr/bin/python3", "/usr/lib/python3/dist-packages/kazoo/client.py")
	o := generous()
	o.Nodes = 3
	g := startTarget(t, o)
	if g.external {
		t.Skip("servers that somebody else started are not killed")
	}
	seconds := strconv.Itoa(int(deaths.Seconds()))
	script := must.Get(filepath.Abs("testdata/kazoo/soak.py"))(t)
	stop := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() { killLeaders(t, g.ensemble, stop) })
	wait := contendOverDeaths(t, g)
	t.Run("clients", func(t *testing.T) {
		t.Run("curator", func(t *testing.T) {
			t.Parallel()
			driver{name: "curator", args: javaDriver(t, "SoakDriver"), least: 5, keys: 4,
				timeout: *deaths + 2*time.Minute}.run(t, g, seconds)
		})
		t.Run("kazoo", func(t *testing.T) {
			t.Parallel()
			driver{name: "kazoo", args: []string{"/usr/bin/python3", "-B", script}, least: 5, keys: 4,
				timeout: *deaths + 2*time.Minute}.run(t, g, seconds)
		})
	})
	wait()
	close(stop)
	killer.Wait()
}

// killLeaders kills the leader, starts it again a second later, and repeats both until `stop` is closed.
func killLeaders(t *testing.T, e *cluster.Ensemble, stop <-chan struct{}) {
	kills := 0
	defer func() { t.Logf("%d leaders killed", kills) }()
	for {
		select {
		case <-stop:
			return
		case <-time.After(3 * time.Second):
		}
		lead := e.Leader()
		if lead == nil {
			continue
		}
		lead.Kill()
		kills++
		time.Sleep(time.Second)
		if err := lead.Spawn(); err != nil {
			t.Error(err)
			return
		}
		if err := lead.WaitReady(); err != nil {
			t.Error(err)
			return
		}
	}
}

// goContender is one client that contends for one kind of lock.
type goContender struct {
	key  string
	ref  *referee
	conn net.Conn // to the referee
}

// inside() enters the critical section, reports a token if there is one, and leaves.
func (c *goContender) inside(mode string, limit int, token func() (int64, error)) error {
	if verdict := c.ref.enter(c.conn, c.key, mode, limit); verdict != "ok" {
		return errors.New(verdict)
	}
	defer c.ref.leave(c.conn, c.key)
	if token == nil {
		time.Sleep(3 * time.Millisecond)
		return nil
	}
	n, err := token()
	if err != nil {
		return err
	}
	if verdict := c.ref.fence(c.conn, c.key, n); verdict != "ok" {
		return errors.New(verdict)
	}
	return nil
}

// contendOverDeaths runs go-zookeeper's lock and the recipes of package client, until wait() has returned.
func contendOverDeaths(t *testing.T, g target) (wait func()) {
	ref := startReferee(t)
	s := &goSuite{target: g, ref: ref, root: fmt.Sprintf("/go-deaths-%d", time.Now().UnixNano())}
	s.connect(t).mustCreate(t, s.root)
	ctx, cancel := context.WithTimeout(context.Background(), *deaths+time.Minute)
	end := time.Now().Add(*deaths)
	var wg sync.WaitGroup
	var ended []func() // called in reverse order
	contend := func(key string, round func(c *goContender, i int) error) {
		conn := must.Get(net.Dial("tcp", ref.addr()))(t)
		wg.Go(func() {
			defer conn.Close()
			c := &goContender{key, ref, conn}
			for i := 0; time.Now().Before(end); i++ {
				if err := round(c, i); err != nil {
					t.Errorf("%s, round %d: %v", key, i, err)
					return
				}
			}
		})
	}
	leased := func(c *goContender, mode string, limit int, get func() (*client.Lease, error), token bool) error {
		l, err := get()
		if err != nil {
			return err
		}
		fencing := func() (int64, error) { return int64(l.Token()), nil }
		if !token {
			fencing = nil
		}
		return errors.Join(c.inside(mode, limit, fencing), l.Err(), l.Unlock(ctx))
	}
	for range 3 {
		stock := s.connect(t)
		counter := s.root + "/counter"
		stock.Create(counter, nil, 0, zk.WorldACL(zk.PermAll))
		contend("go-zookeeper-lock", func(c *goContender, _ int) error {
			l := zk.NewLock(stock.Conn, s.root+"/lock", zk.WorldACL(zk.PermAll))
			for {
				err := l.Lock()
				if err == nil {
					break
				}
				if !disconnected(err) {
					return fmt.Errorf("lock: %w", err)
				}
				// If the connection breaks while go-zookeeper waits for the lock, its node stays behind.
				// Remove it.
				if err := removeOwn(stock.Conn, s.root+"/lock"); err != nil {
					return fmt.Errorf("own node after a lost connection: %w", err)
				}
			}
			err := c.inside("x", 1, func() (int64, error) { return bump(stock.Conn, counter) })
			return errors.Join(err, ignore(again(l.Unlock), zk.ErrNoNode))
		})

		own := must.Get(client.Dial(ctx, g.String(), client.WithSessionTimeout(10*time.Second)))(t)
		ended = append(ended, func() { own.Close(ctx) })
		contend("client-mutex", func(c *goContender, _ int) error {
			return leased(c, "x", 1, func() (*client.Lease, error) { return own.Mutex(s.root + "/mutex").Lock(ctx) },
				true)
		})
		contend("client-rwmutex", func(c *goContender, i int) error {
			if i%3 == 0 {
				return leased(c, "w", 1, func() (*client.Lease, error) { return own.RWMutex(s.root + "/rw").Lock(ctx) },
					true)
			}
			return leased(c, "r", 1, func() (*client.Lease, error) { return own.RWMutex(s.root + "/rw").RLock(ctx) },
				false)
		})
		contend("client-semaphore", func(c *goContender, _ int) error {
			return leased(c, "s", 2, func() (*client.Lease, error) {
				return own.Semaphore(s.root+"/sem", 2).Acquire(ctx, 1)
			}, false)
		})
		contend("client-election", func(c *goContender, _ int) error {
			return leased(c, "x", 1, func() (*client.Lease, error) {
				return own.Election(s.root+"/election").Campaign(ctx, nil)
			}, true)
		})
		was := own.Session().ID
		ended = append(ended, func() {
			expect.Equal(t, own.Session().ID, was, "a session of package client was lost")
		})
	}
	return func() {
		defer cancel()
		wg.Wait()
		for _, f := range slices.Backward(ended) {
			f()
		}
		ref.judge(t, 5)
	}
}

// again() repeats an operation whose connection failed, because go-zookeeper does not do so itself.
func again(f func() error) error {
	for {
		err := f()
		if !disconnected(err) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func disconnected(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer)
}

// removeOwn deletes the nodes of the client's session in a directory.
func removeOwn(c *zk.Conn, dir string) error {
	var names []string
	if err := again(func() (err error) { names, _, err = c.Children(dir); return err }); err != nil {
		return ignore(err, zk.ErrNoNode)
	}
	for _, n := range names {
		var st *zk.Stat
		err := again(func() (err error) { _, st, err = c.Exists(dir + "/" + n); return err })
		if err == nil && st.EphemeralOwner == c.SessionID() {
			err = again(func() error { return c.Delete(dir+"/"+n, -1) })
		}
		if err := ignore(err, zk.ErrNoNode); err != nil {
			return err
		}
	}
	return nil
}

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

// bump() writes a counter and returns its new version. No other client may write the counter at that time.
func bump(c *zk.Conn, path string) (int64, error) {
	mine := fmt.Sprintf("%d-%d", c.SessionID(), time.Now().UnixNano())
	var st *zk.Stat
	get := func() (data []byte, err error) {
		err = again(func() error { data, st, err = c.Get(path); return err })
		return data, err
	}
	if _, err := get(); err != nil {
		return 0, err
	}
	version := st.Version
	err := again(func() (err error) { st, err = c.Set(path, []byte(mine), version); return err })
	if errors.Is(err, zk.ErrBadVersion) {
		// Either a write whose answer was lost was repeated, or another client made the node: read it.
		data, err := get()
		if err == nil && string(data) != mine {
			err = errors.New("the counter was written by somebody else")
		}
		if err != nil {
			return 0, err
		}
		return int64(st.Version), nil
	}
	if err != nil {
		return 0, err
	}
	return int64(st.Version), nil
}
