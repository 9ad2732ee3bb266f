package peer

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// Listen listens on the network; a test may use another function. Servers must notice a silent dead peer: a
// follower that waits on a vanished leader's connection cannot vote.
func Listen(addr string) (net.Listener, error) {
	lc := net.ListenConfig{Control: socketOptions, KeepAliveConfig: keepAlive}
	return lc.Listen(context.Background(), "tcp", addr)
}

// Dial connects over the network; see Listen.
func Dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 2 * time.Second, Control: socketOptions, KeepAliveConfig: keepAlive}
	return d.DialContext(ctx, "tcp", addr)
}

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 3 * time.Second, Interval: time.Second, Count: 3}

// userTimeout bounds how long sent bytes may stay unacknowledged. On systems without this bound
// (socket_other.go), the deadlines of reads and writes show later that a peer is gone.
const userTimeout = 10 * time.Second

func socketOptions(_, _ string, c syscall.RawConn) error {
	var err error
	ctlErr := c.Control(func(fd uintptr) {
		err = boundUnacknowledged(int(fd), userTimeout)
	})
	return errors.Join(ctlErr, err)
}
