package peer

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// Listen listens on the network; it is Options.Listen unless a test sets another function. Listen sets
// keep-alive, so that a server notices when a peer vanishes without closing its connections: a follower
// cannot vote while it waits for a message from a vanished leader.
func Listen(addr string) (net.Listener, error) {
	lc := net.ListenConfig{Control: socketOptions, KeepAliveConfig: keepAlive}
	return lc.Listen(context.Background(), "tcp", addr)
}

// Dial connects over the network, with keep-alive as in Listen.
func Dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 2 * time.Second, Control: socketOptions, KeepAliveConfig: keepAlive}
	return d.DialContext(ctx, "tcp", addr)
}

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 3 * time.Second, Interval: time.Second, Count: 3}

// userTimeout bounds how long sent bytes may stay unacknowledged. Systems without this bound
// (socket_other.go) notice only later, by the deadlines of reads and writes, that a peer is gone.
const userTimeout = 10 * time.Second

func socketOptions(_, _ string, c syscall.RawConn) error {
	var err error
	ctlErr := c.Control(func(fd uintptr) {
		err = boundUnacknowledged(int(fd), userTimeout)
	})
	return errors.Join(ctlErr, err)
}
