//go:build !windows

package audit

import (
	"log/syslog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Each line goes to the system's log as a message.
func TestLinesAreMessagesOfTheSystemsLog(t *testing.T) {
	dir := must.Get(os.MkdirTemp("", "log"))(t) // the address of a socket must be short
	defer os.RemoveAll(dir)
	addr := filepath.Join(dir, "log")
	conn := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: addr, Net: "unixgram"}))(t)
	defer conn.Close()
	w := lineWriter{must.Get(syslog.Dial("unixgram", addr, syslog.LOG_INFO, "tag"))(t)}
	n, err := w.Write([]byte("first\nsecond\n"))
	expect.Equal(t, n, len("first\nsecond\n"))
	expect.OK(t, err)
	must.OK(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	for _, want := range []string{"first\n", "second\n"} {
		b := make([]byte, 1000)
		n := must.Get(conn.Read(b))(t)
		expect.That(t, strings.HasSuffix(string(b[:n]), ": "+want), "%q", b[:n])
	}
	must.OK(t, w.Close())
	must.OK(t, conn.Close())
	must.OK(t, os.Remove(addr))
	_, err = w.Write([]byte("third\n"))
	expect.Fails(t, err, "without the system's log")
}
