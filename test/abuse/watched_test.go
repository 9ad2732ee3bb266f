package abuse

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// watchedAttacks make changes with many events, while clients at the attacker's address watch.
var watchedAttacks = []attack{
	{"ends of sessions with 5,000 nodes before 20 watchers", func(a *attacker) {
		var wg sync.WaitGroup
		wg.Go(func() {
			a.sessions(20, a.All, func(c *wire.Conn, _ int) error {
				if err := c.AddWatch("/abuse", jute.AddWatchRecursive); err != nil {
					return err
				}
				c.SetReadDeadline(time.Time{})
				_, err := io.Copy(io.Discard, c)
				return err
			})
		})
		a.sessions(5, a.All, func(c *wire.Conn, i int) error {
			port := c.LocalAddr().(*net.TCPAddr).Port
			if err := many(c, 5000, func(k int) []byte {
				path := fmt.Sprintf("/abuse/server-%d-%d-%d", port, i, k)
				return wire.Create(path, nil, jute.WorldAnyone, jute.FlagEphemeral)
			}); err != nil {
				return err
			}
			_, err := c.Call(jute.OpCloseSession, nil)
			return err
		})
		wg.Wait()
	}},
}
