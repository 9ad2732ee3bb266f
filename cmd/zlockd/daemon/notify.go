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

// notifier tells the service manager how the server is, in the protocol of sd_notify: it sends datagrams with
// lines KEY=VALUE to the socket that NOTIFY_SOCKET names. Without a service manager it does nothing.
type notifier struct {
	conn     net.Conn
	watchdog time.Duration // the manager expects a sign of life at least this often; 0: never
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
	n.conn.SetWriteDeadline(time.Now().Add(time.Second)) // do not wait longer for a manager that hangs
	if _, err := n.conn.Write([]byte(lines)); err != nil {
		n.log.Debug("notify the service manager", "err", err)
	}
}

// ready() reports that the server serves clients.
func (n *notifier) ready(l readyLine) {
	n.up.Store(true)
	n.tell(fmt.Sprintf("READY=1\nSTATUS=serving clients at %s, mode %s", l.client, l.mode))
}

// reloading() tells the manager that the server reads its configuration again. The manager needs the time of
// the monotonic clock with it, to tell old messages from new ones.
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

// follow() keeps the status line current, and tells the watchdog that the server works. It tells the watchdog
// only after status() has returned. status() takes the state lock, so it hangs if the server can no longer
// apply entries.
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
