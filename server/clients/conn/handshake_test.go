package conn

import (
	"net"
	"testing"

	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
)

// The server recognises another protocol by the client's first bytes.
func TestBeginningsOfOtherProtocols(t *testing.T) {
	for first, want := range map[string]struct{ foreign, answered bool }{
		"GET ": {true, true}, "POST": {true, true}, "HEAD": {true, true}, "PUT ": {true, true},
		"DELE":             {false, false},
		"\x16\x03\x01\x02": {true, false}, "\x16\x02\x01\x02": {false, false},
		"\x15\x03\x01\x02": {false, false},
		"\x00\x00\x00\x2d": {false, false},
	} {
		s, c := quiet(t, options.Options{})
		s.adminURL = "http://a:8181"
		expect.Equal(t, c.foreign([4]byte([]byte(first))), want.foreign, "%q", first)
		expect.Equal(t, c.reader.said, want.foreign, "%q: c.reader.said", first)
		expect.Equal(t, s.Counts.Foreign.Load() == 1, want.foreign,
			"%q: s.counts.foreign.Load() == 1", first)
		expect.Equal(t, c.out.Size() > 0 && c.out.Look().State == "ending" && c.out.Look().Why == ends.Plain,
			want.answered, "%q", first)
		if want.answered {
			expect.Has(t, string(c.out.Look().Buf), "http://a:8181/\n")
		}
	}
	for n, want := range map[byte]ends.Reason{0: ends.Client,
		1: ends.Length} { // the frame is n bytes longer than 1 KiB
		s, c := quiet(t, options.Options{})
		client, server := net.Pipe()
		c.out.NC = server
		client.Close()
		_, why := c.helloFrame([4]byte{0, 0, 4, n})
		expect.Equal(t, why, want, "%d bytes: why", 1024+int(n))
		expect.Equal(t, s.Metrics.HandshakeFailed.Load() == 1, want == ends.Length,
			"%d bytes: s.metrics.HandshakeFailed.Load() == 1", 1024+int(n))
	}
}
