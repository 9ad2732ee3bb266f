package peer

import (
	"time"

	"golang.org/x/sys/unix"
)

// boundUnacknowledged sets the bound in seconds, because macOS has no finer unit. macOS counts them from the
// first retransmission.
func boundUnacknowledged(fd int, d time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RXT_CONNDROPTIME, int(d/time.Second))
}
