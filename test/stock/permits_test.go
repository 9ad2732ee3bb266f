//go:build stock

package stock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestPermitsOfAllReleases lets Curator's semaphore, zlock of the first release, zlock of this release,
// package client and tickets take permits of one semaphore. There are never more holders than permits. Some
// programs are killed while they hold.
func TestPermitsOfAllReleases(t *testing.T) {
	beside(t)
	const path, limit, rounds = "/gpu", 3, 25
	version := cluster.FirstRelease // this zlock first counts the taken permits, and then creates its own
	old := cluster.Release(t, version)
	now := cluster.Zlock(t)
	port := must.Get(cluster.FreePorts(1))(t)[0]
	o := generous()
	o.Kind, o.Nodes = cluster.Zlockd, 1
	o.Flags = append(o.Flags, "--ticket-addr", port)
	e := cluster.Run(t, o)
	r := startReferee(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	var numbered, plain atomic.Int64
	going := atomic.Bool{}
	going.Store(true)

	// inside() tells the referee when a hold begins and when it ends.
	inside := func() {
		c := must.Get(net.Dial("tcp", r.addr()))(t)
		defer c.Close()
		expect.Equal(t, r.enter(c, path, "s", limit), "ok")
		time.Sleep(5 * time.Millisecond)
		expect.Equal(t, r.leave(c, path), "ok")
	}
	count := func(slots bool) {
		if slots {
			numbered.Add(1)
		} else {
			plain.Add(1)
		}
	}
	args := append(javaDriver(t, "CuratorDriver"), "contend", "semaphore", path, path, fmt.Sprint(rounds))
	curator := exec.CommandContext(ctx, args[0], args[1:]...)
	curator.Env = append(os.Environ(), "ZK="+e.Addrs(), "REFEREE="+r.addr())
	all.Go(func() {
		defer going.Store(false) // the other programs go on as long as Curator does
		out, err := curator.CombinedOutput()
		expect.OK(t, err, "Curator: %s", out)
	})
	host, refereePort, _ := net.SplitHostPort(r.addr())
	script := fmt.Sprintf(`exec 3<>/dev/tcp/%s/%s; echo enter %s s %d >&3; read a <&3; sleep 0.005
[ "$KILLED" = "" ] || { kill -9 $PPID; sleep 60; }
echo leave %[3]s >&3; read b <&3; echo "$a $b ${ZLOCK_SLOT:+slot}"`, host, refereePort, path, limit)
	zlock := func(binary string) {
		for n := 0; going.Load() || n < rounds; n++ {
			cmd := exec.CommandContext(ctx, binary, "run", "--semaphore", fmt.Sprint(limit), path, "--", "bash",
				"-c", script)
			cmd.Env = append(os.Environ(), "ZLOCK_SERVERS="+e.Addrs())
			if n%8 == 7 {
				cmd.Env = append(cmd.Env, "KILLED=yes")
			}
			out, err := cmd.CombinedOutput()
			if n%8 == 7 {
				must.Fails(t, err, "a killed %s", binary)
				continue
			}
			expect.That(t, err == nil && strings.HasPrefix(string(out), "ok ok"), "%s: %v %s", binary, err, out)
			count(strings.Contains(string(out), "slot"))
		}
	}
	all.Go(func() { zlock(filepath.Join(old, "zlock")) })
	all.Go(func() { zlock(now) })
	all.Go(func() {
		c := must.Get(client.Dial(ctx, e.Addrs()))(t)
		defer c.Close(context.Background())
		s := c.Semaphore(path, limit)
		for n := 0; going.Load() || n < rounds; n++ {
			l, err := s.Acquire(ctx, 1)
			must.OK(t, err)
			_, err = l.Slots()
			expect.That(t, err == nil || errors.Is(err, client.ErrNoSlots), "numbers: %v", err)
			count(err == nil)
			inside()
			expect.OK(t, l.Unlock(ctx))
		}
	})
	all.Go(func() {
		ask := func(method string, n int, query string) int {
			at := "http://" + port + "/v1/locks" + path + query
			r := must.Get(http.NewRequestWithContext(ctx, method, at, nil))(t)
			r.Header.Set("Zlock-Ticket", fmt.Sprintf("secret-of-ticket-number-%d", n))
			a := must.Get(http.DefaultClient.Do(r))(t)
			a.Body.Close()
			return a.StatusCode
		}
		for n := 0; going.Load() || n < rounds; n++ {
			for code := 0; code != 200 && code != 201; {
				code = ask("POST", n, fmt.Sprintf("?mode=permit&limit=%d&wait=1m", limit))
				must.That(t, code <= 202, "ticket %d: code %d", n, code)
			}
			inside()
			expect.Equal(t, ask("DELETE", n, ""), 204, "the end of ticket %d", n)
		}
	})
	all.Wait()
	r.judge(t, 1)
	k := r.keys[path]
	expect.That(t, k.most == limit, "at most %d hold at once: it checks nothing", k.most)
	t.Logf("beside zlock of release %s and Curator: %d holds of ours with a number, %d without", version,
		numbered.Load(), plain.Load())
}
