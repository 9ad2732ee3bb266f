package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// notifier tells the service manager how the server fares, by the protocol of
// sd_notify: a datagram of lines KEY=VALUE to the socket that NOTIFY_SOCKET names.
// Without a service manager the notifier does nothing.
type notifier struct {
	conn     net.Conn
	watchdog time.Duration // how often the manager wants to hear that the server works; 0: never
	log      *slog.Logger
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
		log.Warn("the service manager does not hear of this server", "socket", name, "err", err)
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

// tell sends lines to the manager.
func (n *notifier) tell(lines string) {
	if n.conn == nil {
		return
	}
	n.conn.SetWriteDeadline(time.Now().Add(time.Second)) // a manager that hangs does not stop the server
	if _, err := n.conn.Write([]byte(lines)); err != nil {
		n.log.Debug("notify the service manager", "err", err)
	}
}

// ready says that the server serves clients.
func (n *notifier) ready(l readyLine) {
	n.tell(fmt.Sprintf("READY=1\nSTATUS=serving clients at %s, mode %s", l.client, l.mode))
}

// stopping says that the server stops in order.
func (n *notifier) stopping() { n.tell("STOPPING=1\nSTATUS=stopping") }

// statusEvery is how often the status line is looked at.
const statusEvery = 5 * time.Second

// follow keeps the status line true, and tells the watchdog that the server works
// for as long as status returns: it takes the lock of the state, so it does not
// return while an entry cannot be applied.
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
