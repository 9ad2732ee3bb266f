package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// manager is the service manager's end of the socket NOTIFY_SOCKET.
type manager struct {
	*net.UnixConn
	name string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // t.TempDir may be too long for a socket's name
	must.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	name := filepath.Join(dir, "s")
	l := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"}))(t)
	t.Cleanup(func() { l.Close() })
	return &manager{l, name}
}

// hears() waits for a datagram with a line that begins with the given text.
func (m *manager) hears(t *testing.T, begin string) {
	t.Helper()
	must.OK(t, m.SetReadDeadline(time.Now().Add(time.Minute)))
	for {
		b := make([]byte, 4096)
		n, err := m.Read(b)
		must.OK(t, err, "no line begins with %q", begin)
		if strings.Contains("\n"+string(b[:n]), "\n"+begin) {
			return
		}
	}
}

func TestManagerHearsHowTheServerFares(t *testing.T) {
	m := newManager(t)
	env := map[string]string{"NOTIFY_SOCKET": m.name, "WATCHDOG_USEC": "20000",
		"WATCHDOG_PID": fmt.Sprint(os.Getpid())}
	n := newNotifier(func(k string) string { return env[k] }, slog.New(slog.DiscardHandler))
	n.ready(readyLine{client: "127.0.0.1:2181", mode: "leader"})
	m.hears(t, "READY=1\nSTATUS=serving clients at 127.0.0.1:2181, mode leader")

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	hang := make(chan struct{})
	lines := make(chan string, 2)
	lines <- "mode leader"
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.follow(ctx, func() string {
			select {
			case l := <-lines:
				return l
			case <-hang:
				return "mode follower"
			}
		})
	}()
	m.hears(t, "WATCHDOG=1")
	m.hears(t, "STATUS=mode leader")
	// While the state is locked, the status does not return and the watchdog gets no message.
	must.OK(t, m.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	if k, err := m.Read(make([]byte, 4096)); err == nil {
		t.Errorf("%d bytes from a server that hangs", k)
	}
	close(hang)
	m.hears(t, "STATUS=mode follower")
	m.hears(t, "WATCHDOG=1")
	cancel()
	<-done
	n.stopping()
	m.hears(t, "STOPPING=1")
}

func TestWatchdogOfAnotherProcessIsLeftAlone(t *testing.T) {
	m := newManager(t)
	env := map[string]string{"NOTIFY_SOCKET": m.name, "WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"}
	if n := newNotifier(func(k string) string { return env[k] },
		slog.New(slog.DiscardHandler)); n.watchdog != 0 {
		t.Errorf("a watchdog every %v", n.watchdog)
	}
	n := newNotifier(func(string) string { return "" }, slog.New(slog.DiscardHandler))
	n.ready(readyLine{}) // without a service manager nothing happens
	n.follow(t.Context(), nil)
}

func TestLogQueueNeverBlocksAndTellsWhatItLost(t *testing.T) {
	r, w := io.Pipe()
	q := newLogQueue(w, 4096)
	log := slog.New(slog.NewTextHandler(q, nil))
	q.tellBy(log)
	for i := range 1000 { // nothing reads the pipe
		log.Info("line", "i", i)
	}
	n := q.lost()
	expect.That(t, n >= 850 && n <= 999, "%d lost", n)
	lost := q.lost()
	got := new(must.Text)
	go io.Copy(got, r)
	got.Await(t, fmt.Sprintf(`msg="%d log lines were lost`, lost))
	log.Info("after")
	got.Await(t, "msg=after")
	q.flush(10 * time.Second)
	lines := strings.Count(got.String(), "\n")
	expect.Equal(t, lines, 1000-int(lost)+2, "lines")
	expect.Equal(t, q.lost(), lost, "lost")
	expect.Has(t, got.String(), "msg=line i=0\n")
	expect.Equal(t, strings.Count(got.String(), "were lost"), 1, "how often it says were lost")
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestLogQueueOutlivesItsReader(t *testing.T) {
	q := newLogQueue(failing{}, 1<<20)
	for range 10 {
		io.WriteString(q, "line\n")
	}
	q.flush(10 * time.Second)
	expect.Equal(t, q.lost(), 10, "lost")
}

// stderrPipe starts a zlockd whose stderr is a pipe of the test.
func stderrPipe(t *testing.T, fill bool) (p *daemonProcess, r *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	must.OK(t, err)
	t.Cleanup(func() { r.Close() })
	if fill {
		fd := int(w.Fd()) // Fd sets the pipe to blocking mode
		must.OK(t, syscall.SetNonblock(fd, true))
		for chunk := bytes.Repeat([]byte("x"), 4096); err == nil; {
			_, err = syscall.Write(fd, chunk)
		}
		must.OK(t, syscall.SetNonblock(fd, false))
	}
	p = prepare("--dev", "--client-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-level", "debug")
	p.cmd.Stderr = w
	p.begin(t)
	w.Close()
	p.wait(t)
	return p, r
}

// busy() makes the server log a lot.
func (p *daemonProcess) busy(t *testing.T) {
	t.Helper()
	for range 200 {
		c := must.Get(wire.Open(p.ready["client"]))(t)
		must.Get(c.Create("/a-", nil, 2))(t)
		c.Close()
	}
}

func TestServerWhoseLogNobodyReadsGoesOn(t *testing.T) {
	p, _ := stderrPipe(t, true)
	p.busy(t)
	expect.Equal(t, p.stop(t), 0, "exit code")
}

func TestServerWhoseLogReaderHasGoneGoesOn(t *testing.T) {
	p, r := stderrPipe(t, false)
	r.Close()
	p.busy(t)
	code, text := p.get(t, "/metrics")
	expect.Equal(t, code, 200, "exit code")
	expect.Has(t, text, "\nzlockd_log_lines_lost_total ", "text")
	expect.That(t, !strings.Contains(text, "\nzlockd_log_lines_lost_total 0\n"),
		"the metrics tell of no lost line")
	expect.Equal(t, p.stop(t), 0, "exit code")
}
