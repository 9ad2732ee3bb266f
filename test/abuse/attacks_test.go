package abuse

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// attack is one way to harm a server.
type attack struct {
	name string
	run  func(a *attacker) // runs until a.ctx ends
}

// Nodes for the attacks: a list of 2 MB, and a node of 1 MB.
const (
	listPath = "/abuse/list"
	bigPath  = "/abuse/big"
)

// prepare() creates the nodes that the attacks need.
func prepare(s *cluster.Server) error {
	c, err := s.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Create("/abuse", nil, 0); err != nil {
		return err
	}
	if _, err := c.Create(bigPath, make([]byte, 1_000_000), 0); err != nil {
		return err
	}
	if _, err := c.Create(listPath, nil, 0); err != nil {
		return err
	}
	name := strings.Repeat("n", 1000)
	for i := range 2000 {
		if _, err := c.Create(fmt.Sprintf("%s/%s%d", listPath, name, i), nil, 0); err != nil {
			return err
		}
	}
	return nil
}

var attacks = slices.Concat([]attack{
	{"nothing", func(a *attacker) { <-a.ctx.Done() }},
	{"16 KiB of identities on small deletes", func(a *attacker) {
		a.sessions(perAddr/4, []target{a.Follower}, func(c *wire.Conn, i int) error {
			for k := range 60 {
				if f, err := c.Call(jute.OpAuth, wire.Auth("digest", fmt.Sprintf("%d-%d-%s:p", i, k,
					strings.Repeat("x", 200)))); err != nil || f.Code != jute.OK {
					return fmt.Errorf("identity %d: %v, %w", k, f.Code, err)
				}
			}
			return flood(c, func(k int) []byte {
				return request(k, jute.OpDelete, wire.PathVersion("/not/there", -1))
			})
		})
	}},
	{"identities of 1 MB", func(a *attacker) {
		long := strings.Repeat("x", 1_000_000)
		a.sessions(perAddr/2, a.All, func(c *wire.Conn, i int) error {
			for k := 0; ; k++ {
				if f, err := c.Call(jute.OpAuth, wire.Auth("digest", fmt.Sprint(k, long, ":p"))); err != nil ||
					f.Code != jute.OK {
					return errEnough
				}
			}
		})
	}},
	{"watches on paths of 60 KB", func(a *attacker) {
		long := strings.Repeat("w", 60_000)
		a.sessions(perAddr, a.All, func(c *wire.Conn, i int) error {
			return flood(c, func(k int) []byte {
				return request(k, jute.OpExists, wire.PathWatch(fmt.Sprintf("/%d-%d-%s", i, k, long), true))
			})
		})
	}},
	{"a great many watches", func(a *attacker) {
		a.sessions(perAddr, a.All, func(c *wire.Conn, i int) error {
			return flood(c, func(k int) []byte {
				return request(k, jute.OpExists, wire.PathWatch(fmt.Sprintf("/%d-%d", i, k), true))
			})
		})
	}},
	{"setWatches of 60 MB, not finished", func(a *attacker) {
		a.sessions(perAddr, a.All, func(c *wire.Conn, _ int) error { return halfSetWatches(c) })
	}},
	{"creates of 1 MB, not finished", func(a *attacker) {
		b := request(1, jute.OpCreate, wire.Create("/never", make([]byte, 1_000_000), jute.WorldAnyone, 0))
		a.sessions(perAddr, a.All, func(c *wire.Conn, _ int) error {
			if err := c.WriteRaw(b[:len(b)-1]); err != nil {
				return err
			}
			return hold(c)
		})
	}},
	{"answers of 60 MB, not read", func(a *attacker) {
		ops := make([]wire.Op, 60)
		for i := range ops {
			ops[i] = wire.Op{Type: jute.OpGetData, Body: wire.PathWatch(bigPath, false)}
		}
		b := request(1, jute.OpMultiRead, wire.Multi(ops...))
		a.sessions(perAddr, a.All, func(c *wire.Conn, _ int) error { return ask(c, b) })
	}},
	{"lists of 2 MB, not read", func(a *attacker) {
		b := request(1, jute.OpGetChildren, wire.PathWatch(listPath, false))
		a.sessions(perAddr, a.All, func(c *wire.Conn, _ int) error { return ask(c, b) })
	}},
	{"events, not read", func(a *attacker) {
		name := strings.Repeat("e", 1000)
		a.sessions(perAddr, a.All, func(c *wire.Conn, i int) error {
			if i < 4 {
				return flood(c, func(k int) []byte {
					path := fmt.Sprintf("/abuse/%s-%d-%d", name, i, k/2)
					if k%2 == 0 {
						return request(k, jute.OpCreate, wire.Create(path, nil, jute.WorldAnyone, jute.FlagEphemeral))
					}
					return request(k, jute.OpDelete, wire.PathVersion(path, -1))
				})
			}
			if err := c.AddWatch("/", jute.AddWatchRecursive); err != nil {
				return err
			}
			return hold(c)
		})
	}},
	{"writes of 300 KB at the leader", func(a *attacker) {
		data := make([]byte, 300_000)
		a.sessions(16, []target{a.Leader}, func(c *wire.Conn, _ int) error {
			return flood(c, func(k int) []byte { return request(k, jute.OpSetData, wire.SetData(bigPath, data, -1)) })
		})
	}},
	{"small writes at the leader", func(a *attacker) {
		a.sessions(8, []target{a.Leader}, func(c *wire.Conn, _ int) error {
			return flood(c, func(k int) []byte {
				return request(k, jute.OpSetData, wire.SetData("/abuse", []byte("x"), -1))
			})
		})
	}},
	{"refused writes of 1 MB", func(a *attacker) {
		data := make([]byte, 1_000_000)
		a.sessions(perAddr/4, a.All, func(c *wire.Conn, _ int) error {
			return flood(c, func(k int) []byte {
				return request(k, jute.OpSetData, wire.SetData("/not/there", data, -1))
			})
		})
	}},
	{"sessions without end", func(a *attacker) {
		a.sessions(perAddr, a.All, func(*wire.Conn, int) error { return nil })
	}},
	{"connections that say nothing", func(a *attacker) {
		a.each(3*perAddr, func(i int) error { return a.raw(a.All[i%len(a.All)].Client, hold) })
	}},
	{"noise, HTTP and TLS on the client port", func(a *attacker) {
		a.each(perAddr, func(i int) error {
			return a.raw(a.All[i%len(a.All)].Client, func(c net.Conn) error {
				noise := make([]byte, 4096)
				rand.Read(noise)
				io.WriteString(c, []string{string(noise), "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01"}[i%3])
				return hold(c)
			})
		})
	}},
	{"four-letter words", func(a *attacker) {
		a.each(perAddr, func(i int) error {
			return a.raw(a.All[i%len(a.All)].Client, func(c net.Conn) error {
				io.WriteString(c, []string{"mntr", "stat", "conf", "cons", "wchp", "dump"}[i%6])
				io.Copy(io.Discard, c)
				return nil
			})
		})
	}},
	{"the admin port", func(a *attacker) {
		a.each(300, func(i int) error {
			return a.raw(a.All[i%len(a.All)].Admin, func(c net.Conn) error {
				if i%10 > 0 { // send the request slowly
					io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: ")
					for range 1000 {
						if _, err := io.WriteString(c, "y"); err != nil {
							return err
						}
						a.pause(100 * time.Millisecond)
					}
				}
				io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
				io.Copy(io.Discard, c)
				return nil
			})
		})
	}},
	{"the peer port", func(a *attacker) {
		a.each(300, func(i int) error {
			return a.raw(a.All[i%len(a.All)].Peer, func(c net.Conn) error {
				switch i % 3 {
				case 1:
					noise := make([]byte, 4096)
					rand.Read(noise)
					c.Write(noise)
				case 2: // announce a greeting of a megabyte, and never send it
					io.WriteString(c, "L\x00\x0f\xff\xff{")
				}
				return hold(c)
			})
		})
	}},
	{"wrong passwords and unknown schemes", func(a *attacker) {
		a.sessions(perAddr, a.All, func(c *wire.Conn, i int) error {
			_, err := c.Call(jute.OpAuth, wire.Auth([]string{"sasl", "super", "x509"}[i%3], strings.Repeat("p", 1000)))
			return err
		})
	}},
	{"new names at the top", func(a *attacker) {
		long := strings.Repeat("t", 30_000)
		a.sessions(perAddr/4, a.All, func(c *wire.Conn, i int) error {
			return flood(c, func(k int) []byte {
				return request(k, jute.OpDelete, wire.PathVersion(fmt.Sprintf("/%s%d-%d/x", long, i, k), -1))
			})
		})
	}},
}, operatorAttacks, watchedAttacks, cheapAttacks)

// ask() sends a request ten times before it reads. Then it reads slowly until the connection ends.
func ask(c *wire.Conn, request []byte) error {
	for range 10 {
		if err := c.WriteRaw(request); err != nil {
			return err
		}
	}
	return hold(c)
}
