package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/must"
)

// manager is a service manager's end of NOTIFY_SOCKET.
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
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	must.OK(t, err)
	t.Cleanup(func() { l.Close() })
	return &manager{l, name}
}

// hears waits for a datagram with a line that begins with the given text.
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
	// While the state's lock is taken the status does not return, and the watchdog hears nothing.
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
	n.ready(readyLine{}) // without a manager nothing happens
	n.follow(t.Context(), nil)
}
