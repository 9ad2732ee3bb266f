package abuse

import (
	"fmt"
	"net"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// cheapAttacks are requests that cost their client next to nothing, and things that the server remembers of
// clients.
var cheapAttacks = []attack{
	{"refused reconfigs", func(a *attacker) {
		a.sessions(perAddr/4, a.All, func(c *wire.Conn, _ int) error {
			return flood(c, func(k int) []byte {
				body := wire.Body{}.Str(fmt.Sprintf("server.%d=127.0.0.1:1:2:participant;3", 10+k%100)).Str("").Str("")
				return request(k, jute.OpReconfig, body.Long(-1))
			})
		})
	}},
	{"pings, and questions for identities", func(a *attacker) {
		a.sessions(perAddr/4, a.All, func(c *wire.Conn, _ int) error {
			return flood(c, func(k int) []byte {
				if k%2 == 0 {
					return wire.AppendRequest(nil, jute.XidPing, jute.OpPing, nil)
				}
				return request(k, jute.OpWhoAmI, nil)
			})
		})
	}},
	{"contenders with long names at 50 prefixes", func(a *attacker) {
		long := strings.Repeat("n", 400)
		a.looked(func() {
			a.sessions(10, []target{a.Leader}, func(c *wire.Conn, i int) error {
				port := c.LocalAddr().(*net.TCPAddr).Port
				dir := func(k int) string { return fmt.Sprintf("/abuse-%d-%d", i, k%5) }
				for k := range 5 {
					if f, err := c.Call(jute.OpCreate, wire.Create(dir(k), nil, jute.WorldAnyone, 0)); err != nil ||
						f.Code != jute.OK && f.Code != jute.NodeExists {
						return fmt.Errorf("prefix %d: %v, %w", k, f.Code, err)
					}
				}
				if err := many(c, 4000, func(k int) []byte {
					return wire.Create(fmt.Sprintf("%s/%s-%d-%d-lock-", dir(k), long, port, k), nil, jute.WorldAnyone,
						jute.FlagEphemeralSequential)
				}); err != nil {
					return err
				}
				return hold(c)
			})
		})
	}},
}
