//go:build interop

package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

const interopJars = "/usr/share/java/zookeeper.jar:/usr/share/java/curator-client.jar:" +
	"/usr/share/java/curator-framework.jar:/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-simple.jar"

// judge records when contenders of this package and of other programs hold a lock. It checks that no two
// conflicting holds overlap, and that the holds follow the order of the queue.
type judge struct {
	t     *testing.T
	limit int // number of permits of a semaphore

	mu                        sync.Mutex
	readers, writers, permits int
	lastWrite, lastAny        int32
	first                     bool
	entries                   int
}

func (j *judge) enter(mode, node string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries++
	switch mode {
	case "w":
		j.writers++
	case "r":
		j.readers++
	case "s":
		j.permits++
	}
	expect.That(j.t, j.writers <= 1, "%s: %d writers inside", node, j.writers)
	expect.That(j.t, j.writers == 0 || j.readers == 0, "%s: %d readers beside a writer", node, j.readers)
	expect.That(j.t, j.permits <= j.limit, "%s: %d permits inside, want %d at most", node, j.permits, j.limit)
	c, _, ok := recipe.ParseName(node)
	if mode == "s" {
		return
	}
	if !ok {
		j.t.Errorf("%s is no contender", node)
		return
	}
	// A writer enters after all contenders before it in the queue. A reader enters after all writers before it.
	after := j.lastWrite
	if mode == "w" {
		after = j.lastAny
	}
	expect.That(j.t, !j.first || !recipe.Before(c.Seq, after),
		"%s (%s) entered after number %d", node, mode, after)
	if mode == "w" || !j.first {
		j.lastWrite = c.Seq
	}
	if !j.first || recipe.Before(j.lastAny, c.Seq) {
		j.lastAny = c.Seq
	}
	j.first = true
}

func (j *judge) exit(mode string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch mode {
	case "w":
		j.writers--
	case "r":
		j.readers--
	case "s":
		j.permits--
	}
}

// listen() lets other processes report to the judge.
func (j *judge) listen() string {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(j.t)
	j.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go j.serve(c)
		}
	}()
	return l.Addr().String()
}

func (j *judge) serve(c net.Conn) {
	defer c.Close()
	mode := ""
	in := bufio.NewScanner(c)
	for in.Scan() {
		if f := strings.Fields(in.Text()); len(f) == 3 {
			mode = f[1]
			j.enter(mode, f[2])
		} else {
			j.exit(mode)
		}
		fmt.Fprintln(c, "ok")
	}
}

func need(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Skipf("%s is not installed: %v", what, err)
	}
}

// curator returns the command of a Java peer.
func curator(t *testing.T) []string {
	_, err := os.Stat("/usr/share/java/curator-recipes.jar")
	need(t, "Curator", err)
	_, err = exec.LookPath("javac")
	need(t, "the Java compiler", err)
	out := t.TempDir()
	if b, err := exec.Command("javac", "-nowarn", "-d", out, "-cp", interopJars,
		"testdata/interop/Peer.java").CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, b)
	}
	return []string{"java", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp",
		out + ":" + interopJars, "Peer"}
}

// kazoo returns the command of a Python peer.
func kazoo(t *testing.T) []string {
	need(t, "kazoo", exec.Command("/usr/bin/python3", "-c", "import kazoo").Run())
	return []string{"/usr/bin/python3", "testdata/interop/peer.py"}
}

// together() lets a foreign process and two clients of this package contend for one path.
func together(t *testing.T, peer []string, kind string,
	ours func(c *Client, d string) func(ctx context.Context) (mode string, l *Lease, err error)) {
	d, o := dir(t), observer(t)
	// Make persistent directories, so that the numbers of their nodes never start again at 0.
	for _, p := range []string{"/t", d} {
		if _, err := o.Create(p, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatal(err)
		}
	}
	n := rounds(10_000, 300)
	j := &judge{t: t, limit: 3}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rounds(60, 3))*time.Minute)
	defer cancel()
	args := append(peer[1:len(peer):len(peer)], addr(t), j.listen(), kind, d, strconv.Itoa(n/2), "2")
	cmd := exec.CommandContext(ctx, peer[0], args...)
	var words strings.Builder
	cmd.Stdout, cmd.Stderr = &words, &words
	must.OK(t, cmd.Start())
	var wg sync.WaitGroup
	for range 2 {
		take := ours(dialTo(t, addr(t), WithSessionTimeout(20*time.Second)), d)
		wg.Go(func() {
			for range n / 2 {
				mode, l, err := take(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				j.enter(mode, recipe.Base(l.Node()))
				j.exit(mode)
				expect.OK(t, l.Unlock(ctx))
			}
		})
	}
	err := cmd.Wait()
	wg.Wait()
	if err != nil {
		t.Fatalf("peer: %v\n%.2000s", err, words.String())
	}
	must.Equal(t, j.entries, 2*n, "%d stays", j.entries)
}

func mutexOf(l Layout) func(*Client, string) func(context.Context) (string, *Lease, error) {
	return func(c *Client, d string) func(context.Context) (string, *Lease, error) {
		return func(ctx context.Context) (string, *Lease, error) {
			lease, err := c.Mutex(d, WithLayout(l)).Lock(ctx)
			return "w", lease, err
		}
	}
}

func rwOf(l Layout) func(*Client, string) func(context.Context) (string, *Lease, error) {
	return func(c *Client, d string) func(context.Context) (string, *Lease, error) {
		m := c.RWMutex(d, WithLayout(l))
		return func(ctx context.Context) (string, *Lease, error) {
			if rand.N(3) == 0 {
				lease, err := m.Lock(ctx)
				return "w", lease, err
			}
			lease, err := m.RLock(ctx)
			return "r", lease, err
		}
	}
}

func semaphoreOf(l Layout) func(*Client, string) func(context.Context) (string, *Lease, error) {
	return func(c *Client, d string) func(context.Context) (string, *Lease, error) {
		s := c.Semaphore(d, 3, WithLayout(l))
		return func(ctx context.Context) (string, *Lease, error) {
			lease, err := s.Acquire(ctx, 1)
			return "s", lease, err
		}
	}
}

func TestE26Curator(t *testing.T) {
	t.Parallel()
	peer := curator(t)
	t.Run("mutex", func(t *testing.T) { together(t, peer, "mutex", mutexOf(LayoutCurator)) })
	t.Run("read-write", func(t *testing.T) { together(t, peer, "rw", rwOf(LayoutCurator)) })
	t.Run("semaphore", func(t *testing.T) { together(t, peer, "semaphore", semaphoreOf(LayoutCurator)) })
}

func TestE27Kazoo(t *testing.T) {
	t.Parallel()
	peer := kazoo(t)
	t.Run("mutex", func(t *testing.T) { together(t, peer, "mutex", mutexOf(LayoutKazoo)) })
	t.Run("read-write", func(t *testing.T) { together(t, peer, "rw", rwOf(LayoutKazoo)) })
	t.Run("semaphore", func(t *testing.T) { together(t, peer, "semaphore", semaphoreOf(LayoutKazoo)) })
	t.Run("in Curator's layout", func(t *testing.T) { together(t, peer, "extra", mutexOf(LayoutCurator)) })
}

func TestGoZookeeperLockBesideOurs(t *testing.T) {
	t.Parallel()
	d, o := dir(t), observer(t)
	if _, err := o.Create(d, nil, 0, zk.WorldACL(zk.PermAll)); errors.Is(err, zk.ErrNoNode) {
		o.Create("/t", nil, 0, zk.WorldACL(zk.PermAll))
		o.Create(d, nil, 0, zk.WorldACL(zk.PermAll))
	}
	n := rounds(2000, 100)
	j := &judge{t: t}
	var wg sync.WaitGroup
	ctx := testCtx(t)
	for range 2 {
		peer, c := observer(t), dial(t)
		wg.Add(2)
		go func() {
			defer wg.Done()
			for range n {
				l := zk.NewLock(peer, d, zk.WorldACL(zk.PermAll))
				if err := l.Lock(); err != nil {
					t.Error(err)
					return
				}
				node := ""
				for _, name := range names(t, o, d) { // the holder has the lowest number
					if x, _, ok := recipe.ParseName(name); ok && (node == "" || x.Seq < seqOf(node)) {
						node = name
					}
				}
				j.enter("w", node)
				j.exit("w")
				l.Unlock()
			}
		}()
		go func() {
			defer wg.Done()
			for range n {
				l, err := c.Mutex(d).Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				j.enter("w", recipe.Base(l.Node()))
				j.exit("w")
				l.Unlock(ctx)
			}
		}()
	}
	wg.Wait()
	must.Equal(t, j.entries, 4*n, "stays")
}

func seqOf(name string) int32 {
	c, _, _ := recipe.ParseName(name)
	return c.Seq
}
