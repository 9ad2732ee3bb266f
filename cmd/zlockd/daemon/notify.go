package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// notifier reports the state of the server to the service manager, by the protocol of
// sd_notify: a datagram of lines KEY=VALUE to the socket that NOTIFY_SOCKET names. Without a
// service manager the notifier does nothing.
type notifier struct {
	conn     net.Conn
	watchdog time.Duration // how often the manager expects to hear that the server works; 0: never
	log      *slog.Logger
	up       atomic.Bool // READY was sent
}

// newNotifier opens the manager's socket.
func newNotifier(getenv func(string) string, log *slog.Logger) *notifier {
	n := &notifier{log: log}
	name := getenv("NOTIFY_SOCKET")
	if name == "" {
		return n
	}
	conn, err := net.Dial("unixgram", name)
	if err != nil {
		log.Warn("cannot notify the service manager", "socket", name, "err", err)
		return n
	}
	n.conn = conn
	pid := getenv("WATCHDOG_PID")
	if us, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 &&
		(pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.watchdog = time.Duration(us) * time.Microsecond
	}
	return n
}

// tell() sends lines to the manager.
func (n *notifier) tell(lines string) {
	if n.conn == nil {
		return
	}
	n.conn.SetWriteDeadline(time.Now().Add(time.Second)) // a manager that hangs does not stop the server
	if _, err := n.conn.Write([]byte(lines)); err != nil {
		n.log.Debug("notify the service manager", "err", err)
	}
}

// ready() reports that the server serves clients.
func (n *notifier) ready(l readyLine) {
	n.up.Store(true)
	n.tell(fmt.Sprintf("READY=1\nSTATUS=serving clients at %s, mode %s", l.client, l.mode))
}

// reloading() reports that the server reads its configuration again. It also reports the present time of the
// monotonic clock, which the manager compares with its own times.
func (n *notifier) reloading() {
	if n.up.Load() {
		n.tell(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", monotonic().Microseconds()))
	}
}

// reloaded() reports that the server has read its configuration.
func (n *notifier) reloaded() {
	if n.up.Load() {
		n.tell("READY=1")
	}
}

// stopping() reports that the server shuts down.
func (n *notifier) stopping() { n.tell("STOPPING=1\nSTATUS=stopping") }

// statusEvery is how often follow() reads the status line.
const statusEvery = 5 * time.Second

// follow() keeps the status line current. Each time that status() returns, it tells the watchdog that the
// server works: status() takes the lock of the state, so it does not return while the server cannot apply an
// entry.
func (n *notifier) follow(ctx context.Context, status func() string) {
	if n.conn == nil {
		return
	}
	every := statusEvery
	if half := n.watchdog / 2; half > 0 && half < every {
		every = half
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := ""
	for {
		line := status()
		if n.watchdog > 0 {
			n.tell("WATCHDOG=1")
		}
		if line != last {
			n.tell("STATUS=" + line)
			last = line
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
