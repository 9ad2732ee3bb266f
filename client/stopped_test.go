package client

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/test/must"
)

func TestE35StoppedProcess(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("stops and starts processes for some seconds: make test-all")
	}
	for range 5 {
		if stoppedProcess(t) {
			return
		}
	}
	t.Fatal("the machine is too busy to hold a lock")
}

// stoppedProcess returns false if the child lost its lock before it was stopped.
func stoppedProcess(t *testing.T) bool {
	d := dir(t)
	p := spawn(t, addr(t), d)
	token := must.Get(fence.ParseToken(p.says(t, "locked")[0]))(t)
	var gate fence.Gate
	must.OK(t, gate.Admit("r", fence.Exclusive, token))
	must.OK(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	least := time.After(stopped)
	// The session of the stopped process ends, and this process gets the lock.
	c := dial(t)
	l := lock(t, c.Mutex(d).Lock)
	defer c.Close(testCtx(t))
	must.That(t, l.Token() > token, "token %d after %d", l.Token(), token)
	must.OK(t, gate.Admit("r", fence.Exclusive, l.Token()))
	<-least
	must.OK(t, p.cmd.Process.Signal(syscall.SIGCONT))
	resumed := p.says(t, "resumed")
	if resumed == nil {
		return false
	}
	must.Equal(t, resumed[0], "false", "valid in the first check: %v", resumed)
	p.says(t, "ended")
	must.Is(t, gate.Admit("r", fence.Exclusive, token), fence.ErrStale, "old token")
	return true
}

// child() is what the test binary does as a child process. It takes a lock and says so. Then it checks its
// lease again and again until the lease is over. After a pause it says whether the lease is valid.
func child() {
	ctx := context.Background()
	c, err := Dial(ctx, os.Getenv("ZLOCKD_CLIENT_CHILD"), quick()...)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	l, err := c.Mutex(os.Getenv("ZLOCKD_CLIENT_PATH")).Lock(ctx)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	ended := make(chan time.Time, 1)
	go func() {
		<-l.Context().Done()
		ended <- time.Now()
	}()
	fmt.Println("locked", l.Token())
	for last := time.Now(); ; {
		now := time.Now()
		if now.Sub(last) >= stopped { // the process was stopped, and no lease lasts for so long
			fmt.Println("resumed", l.Valid())
			end := <-ended
			fmt.Println("ended", end.Sub(now).Milliseconds(), context.Cause(l.Context()))
			return
		}
		last = now
		if len(ended) > 0 { // the machine was too busy to keep the lease
			fmt.Println("early", context.Cause(l.Context()))
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// stopped is the shortest time for which the parent stops its child. It is longer than a lease with the
// options of quick().
const stopped = 3500 * time.Millisecond

// process is a child process of a test.
type process struct {
	cmd   *exec.Cmd
	lines chan []string
}

// spawn starts the test binary as a child that locks `path`.
func spawn(t *testing.T, servers, path string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ZLOCKD_CLIENT_CHILD="+servers, "ZLOCKD_CLIENT_PATH="+path)
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	p := &process{cmd: cmd, lines: make(chan []string, 10)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		in := bufio.NewScanner(out)
		for in.Scan() {
			p.lines <- strings.Fields(in.Text())
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-done
		cmd.Wait()
	})
	return p
}

// says() waits for the child's next line, which must begin with `word`. If the child lost its lock before it
// was stopped, the test begins again.
func (p *process) says(t *testing.T, word string) []string {
	t.Helper()
	l := soon(t, "the child to say "+word, p.lines)
	if len(l) < 2 || l[0] != word {
		if len(l) > 0 && l[0] == "early" {
			return nil
		}
		t.Fatalf("child: %v", l)
	}
	return l[1:]
}
