//go:build stock && apps

package stock

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// kills is the smallest number of leaders that each application loses.
const kills = 3

// needApp skips the test if a program that it needs is not installed, and names the program. With
// ZLTEST_REQUIRE_STOCK=1 it fails the test instead.
func needApp(t *testing.T, files ...string) {
	t.Helper()
	for _, f := range files {
		if _, err := os.Stat(f); err == nil {
			continue
		}
		must.Equal(t, os.Getenv("ZLTEST_REQUIRE_STOCK"), "",
			"%s is not installed: run test/stock/install-apps.sh", f)
		t.Skipf("NOT RUN: %s is not installed: run test/stock/install-apps.sh", f)
	}
}

// application is the three servers of one application. They run zlockd. With ZLOCKD_APPS_TARGET=zookeeper
// they run Debian's ZooKeeper, which proves that the tests themselves are right.
type application struct {
	*cluster.Ensemble
	t *testing.T
}

func start(t *testing.T) application {
	t.Helper()
	kind := cluster.Kind(os.Getenv("ZLOCKD_APPS_TARGET"))
	e := cluster.Run(t, cluster.Options{Kind: kind, Nodes: 3})
	return application{e, t}
}

// killLeader kills the leading server and waits until another one leads. It returns the dead server, and how
// many sessions that server had.
func (c application) killLeader() (dead *cluster.Server, cut int) {
	c.t.Helper()
	within(c.t, 30*time.Second, "a leader", func() error {
		if dead = c.Leader(); dead == nil {
			return fmt.Errorf("none leads")
		}
		return nil
	})
	cut = sessions(dead)
	at := time.Now()
	dead.Kill()
	within(c.t, 30*time.Second, "another leader", func() error {
		if c.Leader() == nil {
			return fmt.Errorf("none leads")
		}
		return nil
	})
	c.t.Logf("server %d led, served %d sessions and was killed; another leads after %v", dead.ID, cut,
		time.Since(at).Round(time.Millisecond))
	return dead, cut
}

// killLeaders kills one leader after another. If the application had no session at any of them, it also kills
// a server at which the application has one. After each death and each restart it waits until progress() has
// grown by `by`.
func (c application) killLeaders(progress func() int64, by int64) {
	c.t.Helper()
	advance := func(when string) {
		c.t.Helper()
		from, at := progress(), time.Now()
		within(c.t, time.Minute, "the application goes on "+when, func() error {
			if now := progress(); now < from+by {
				return fmt.Errorf("it stands at %d, was at %d", now, from)
			}
			return nil
		})
		c.t.Logf("goes on %s: %d more after %v", when, by, time.Since(at).Round(time.Millisecond))
	}
	goOn := func() {
		c.t.Helper()
		advance("without the dead server")
		must.OK(c.t, c.StartAll())
		advance("with all three")
	}
	advance("before the first death")
	met := false
	for range kills {
		_, cut := c.killLeader()
		met = met || cut > 0
		goOn()
	}
	for _, s := range c.Servers {
		if n := sessions(s); !met && n > 0 {
			c.t.Logf("server %d served %d sessions and is killed", s.ID, n)
			s.Kill()
			met = true
			goOn()
		}
	}
	expect.That(c.t, met, "no server that died served the application")
}

func sessions(s *cluster.Server) int { return strings.Count(s.Word("cons"), "sid=0x") }

// within() waits until ok() returns nil.
func within(t *testing.T, limit time.Duration, what string, ok func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
	}
	t.Fatalf("%s: not within %v: %v", what, limit, err)
}

// process is a program of an application. Its output goes to a file, which a failed test shows.
type process struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
	err    error // set when `exited` is closed
}

// spawn() starts a program that ends when the test or the test's process ends.
func spawn(t *testing.T, name string, as *syscall.Credential, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(args[0], args[1:]...), log: filepath.Join(t.TempDir(), name+".log"),
		exited: make(chan struct{})}
	out := must.Get(os.Create(p.log))(t)
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: as}
	if as != nil {
		p.cmd.Dir = os.TempDir() // the user `as` may not enter the test's own directory
	}
	must.OK(t, p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.tail(6000))
		}
	})
	return p
}

// kill() ends the program and all processes that the program started.
func (p *process) kill() {
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.exited
}

func (p *process) tail(n int) []byte {
	b, _ := os.ReadFile(p.log)
	return b[max(0, len(b)-n):]
}

// wait() waits until the program has ended with exit code 0.
func (p *process) wait(t *testing.T, limit time.Duration) {
	t.Helper()
	select {
	case <-p.exited:
		expect.OK(t, p.err, "%s", filepath.Base(p.log))
	case <-time.After(limit):
		t.Fatalf("%s does not end", filepath.Base(p.log))
	}
}

// lines() returns the lines of a file. It returns none while the file does not exist.
func lines(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	must.That(t, err == nil || os.IsNotExist(err), "%v", err)
	return strings.Fields(string(bytes.TrimSpace(b)))
}

func ports(t *testing.T, n int) []string {
	t.Helper()
	list := must.Get(cluster.FreePorts(n))(t)
	return list
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	must.OK(t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
