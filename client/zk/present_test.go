package zk

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An identity counts as accepted only if the answer is complete, has no error and belongs to the request.
func TestAnswersToAnIdentity(t *testing.T) {
	const authXid = -4
	answer := func(size, xid int32, code jute.ErrCode) []byte {
		b := jute.AppendInt(nil, size)
		b = jute.AppendLong(jute.AppendInt(b, xid), 7)
		return jute.AppendInt(b, int32(code))
	}
	right := answer(jute.ReplyHeaderSize, authXid, jute.OK)
	for name, c := range map[string]struct {
		answer []byte
		want   error
	}{
		"accepted":            {right, nil},
		"refused":             {answer(jute.ReplyHeaderSize, authXid, jute.AuthFailed), ErrAuthFailed},
		"of another call":     {answer(jute.ReplyHeaderSize, 1, jute.OK), errNotProtocol},
		"of another size":     {answer(jute.ReplyHeaderSize+1, authXid, jute.OK), errNotProtocol},
		"something else":      {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), errNotProtocol},
		"cut":                 {right[:len(right)-1], io.ErrUnexpectedEOF},
		"a closed connection": {nil, io.EOF},
	} {
		ours, theirs := net.Pipe()
		must.OK(t, ours.SetDeadline(time.Now().Add(time.Minute)))
		must.OK(t, theirs.SetDeadline(time.Now().Add(time.Minute)))
		go func() {
			defer theirs.Close()
			var size [4]byte
			if _, err := io.ReadFull(theirs, size[:]); err != nil {
				return
			}
			d := jute.NewDecoder(size[:])
			if _, err := io.CopyN(io.Discard, theirs, int64(d.Int())); err == nil {
				theirs.Write(c.answer)
			}
		}()
		err := present(ours, bufio.NewReader(ours), Auth{Scheme: "digest", Secret: []byte("bob:secret")})
		expect.Is(t, err, c.want, "%s", name)
		expect.Equal(t, err == nil, c.want == nil, "%s: whether it succeeds", name)
		ours.Close()
	}
}
