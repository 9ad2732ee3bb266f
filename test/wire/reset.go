package wire

import (
	"errors"
	"io"
	"syscall"
)

// isReset reports whether err says that the peer ended the connection abruptly.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.ErrClosedPipe)
}
