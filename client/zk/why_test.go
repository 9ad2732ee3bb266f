package zk

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// Whichever step of a connection fails, the Conn knows if the peer closed it without an answer. It does not
// confuse that with a peer that answers, or with one that it cannot reach.
func TestErrorsThatSayNothing(t *testing.T) {
	op := func(name string, err error) error {
		return &net.OpError{Op: name, Net: "tcp", Source: &net.TCPAddr{Port: 40123}, Addr: &net.TCPAddr{Port: 2181},
			Err: err}
	}
	for _, x := range []struct {
		err  error
		says bool
		text string
		tls  string
	}{
		{io.EOF, false, "EOF", "does not speak TLS"},
		{io.ErrUnexpectedEOF, false, "unexpected EOF", "does not speak TLS"},
		{op("read", syscall.ECONNRESET), false, "read: connection reset by peer", "does not speak TLS"},
		{op("write", syscall.EPIPE), false, "write: broken pipe", "does not speak TLS"},
		{op("dial", syscall.ECONNREFUSED), true, "dial tcp :40123->:2181: connection refused", "TLS: dial tcp"},
		{op("write", syscall.EHOSTUNREACH), true, "write: no route to host", "TLS: write: no route"},
		{errNotProtocol, true, errNotProtocol.Error(), "TLS: the answer does not"},
		{tls.RecordHeaderError{Msg: "not TLS"}, true, "tls: not TLS", "does not speak TLS"},
	} {
		for _, err := range []error{x.err, fmt.Errorf("%w", x.err)} {
			expect.Equal(t, wordless(err), !x.says, "%v: whether the server said nothing", err)
			expect.Has(t, whyTLS(err).Error(), x.tls)
			expect.Equal(t, errors.Is(whyTLS(err), errNoTLS), x.tls == "does not speak TLS", "%v: no TLS", err)
		}
		expect.Equal(t, portless(x.err).Error(), x.text)
	}
}
