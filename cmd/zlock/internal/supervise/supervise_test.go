//go:build !windows

package supervise

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestMain makes the test program the guard of its own tests.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "__guard" {
		stdin, _ := strconv.Atoi(os.Args[2])
		if Watch(os.Stdin, stdin, func(string, ...any) {}, func([]byte) error { return nil }) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The guard itself ends the group of processes when the guard's input ends, and when the deadline has passed.
func TestWatchman(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) time.Duration { return BootClock() + d }
	for name, tc := range map[string]struct {
		talk func(g *Guard)
		stay bool
	}{
		"done":            {func(g *Guard) { g.Done() }, true},
		"zlock dies":      {func(g *Guard) { _ = unix.Shutdown(int(g.conn.Fd()), unix.SHUT_WR) }, false},
		"deadline passes": {func(g *Guard) { g.tell(in(50 * time.Millisecond)) }, false},
		"deadline moves": {func(g *Guard) {
			const first = 4 * time.Second // long, because on a busy machine the next order may come late
			g.tell(in(first))
			g.tell(in(time.Hour))
			time.Sleep(first + 2*guardLag)
			g.Done()
		}, true},
		"kill after loss": {func(g *Guard) { g.send(order{Kill: in(50 * time.Millisecond)}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// When the guard ends, the system ends COMMAND, too. So only a child of COMMAND shows what the
			// guard itself has done.
			file := filepath.Join(t.TempDir(), "pid")
			script := `(trap "" TERM; while :; do sleep .02; done) & echo $! >"$1.new"; mv "$1.new" "$1"
trap "" TERM; while :; do sleep .02; done`
			argv := []string{"sh", "-c", script, "sh", file}
			g := must.Get(StartGuard(must.Get(os.Executable())(t)))(t)
			c, err := g.start(newLaunch(&Command{Path: "/bin/sh", Argv: argv, Env: os.Environ(),
				Loss: Loss{OnLost: syscall.SIGTERM, KillAfter: 100 * time.Millisecond}}), in(time.Hour))
			must.OK(t, err)
			defer syscall.Kill(-c.pid, syscall.SIGKILL)
			pid := 0
			for end := time.Now().Add(30 * time.Second); pid == 0 &&
				time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				if b, err := os.ReadFile(file); err == nil {
					pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
				}
			}
			must.That(t, pid != 0, "COMMAND did not start")
			tc.talk(g)
			if tc.stay {
				time.Sleep(300 * time.Millisecond)
				expect.That(t, Alive(pid), "the group was ended")
				return
			}
			must.Await(t, "the end of the group", time.Minute, func() bool { return !Alive(pid) })
			g.Done()
		})
	}
}

// While the guard starts, this process closes files. The system may use the number of a closed file again,
// for a descriptor of the start. Even then the guard's end of the socket must stay open.
func TestGuardStartsBesideFilesThatCloseAndOpen(t *testing.T) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			var open []int
			for range 30 {
				if fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
					open = append(open, fd)
				}
			}
			for _, fd := range open {
				closeFD(fd)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	exit := &Command{Path: "/bin/sh", Argv: []string{"sh", "-c", "exit 7"}, Env: os.Environ()}
	for i := range 100 {
		g := must.Get(StartGuard(must.Get(os.Executable())(t)))(t)
		c, err := g.start(newLaunch(exit), BootClock()+time.Hour)
		must.OK(t, err, "guard %d", i)
		must.That(t, (<-c.news).Ended, "the end is not the first news")
		must.Equal(t, c.code(), 7)
		g.Done()
	}
	close(stop)
	<-stopped
}

// A terminal may send a signal before COMMAND has joined the process group. zlock then passes the signal on,
// even if zlock gets it late. Later signals come to COMMAND from the terminal itself.
func TestLateSignalOfTheStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ran  time.Duration
		want syscall.Signal
	}{ // the signal comes before COMMAND has joined the group, or after; the time `ran` decides
		{-time.Hour, syscall.SIGINT}, {time.Hour, syscall.SIGTERM},
	} {
		cmd := exec.Command("sleep", "1000")
		must.OK(t, cmd.Start())
		s := &supervisor{Command: &Command{Foreground: true}, started: time.Now().Add(-c.ran),
			child: &child{target: target{pid: cmd.Process.Pid}}}
		s.forward(syscall.SIGINT)
		s.forward(syscall.SIGTERM)
		cmd.Wait()
		expect.Equal(t, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), c.want, "what ended COMMAND")
	}
}

// An outer zlock gives an inner one some time to end. The inner zlock gives its own COMMAND a second less
// than that, but at least half of it.
func TestGraceWithin(t *testing.T) {
	t.Parallel()
	for outer, want := range map[string]string{"5s": "4s", "2s": "1s", "1s": "500ms", "0s": "0s", "": "0s",
		"x": "0s"} {
		expect.Equal(t, GraceWithin(outer).String(), want, "grace within %q", outer)
	}
}
