package peer

import (
	"time"

	"golang.org/x/sys/unix"
)

// boundUnacknowledged: macOS counts seconds, from the first retransmission.
func boundUnacknowledged(fd int, d time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RXT_CONNDROPTIME, int(d/time.Second))
}
