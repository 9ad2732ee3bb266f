package zk

import (
	"context"
	"io"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// outlived reports whether the session is over by the client's clock: no connection has carried it, and no
// handshake has confirmed it, for its whole timeout. A server may still have the session, for example if
// there is no leader, so the Conn asks a server before it gives up.
func (c *Conn) outlived() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sid != 0 && !c.lost.IsZero() && time.Since(c.lost) > c.timeout
}

// takesNew reports whether a server that refuses the session would begin a new one. To find out, takesNew
// begins one and closes it. The answer tells two cases apart: a server that has lost its data refuses the old
// session forever, and yet begins new ones.
func (c *Conn) takesNew(ctx context.Context, server string) bool {
	conn, err := c.dial(ctx, server)
	if err != nil {
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, _, _, err = c.hello(conn, conn, 0, 0, make([]byte, jute.PasswordSize)); err != nil {
		return false
	}
	bye := &call{}
	bye.end(bye.begin(jute.OpCloseSession, "", 0))
	bye.stamp(1)
	if _, err := conn.Write(bye.frame); err == nil {
		_, _ = io.ReadFull(conn, make([]byte, 4)) // the answer comes once the session is closed: wait for it
	}
	return true
}
