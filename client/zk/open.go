package zk

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/zlockd/zlockd/jute"
)

// Open begins a session and returns at once: calls wait for a connection. Servers are given as
// "h1:2181,h2:2181/chroot", in any order; the Conn tries them in random order.
func Open(servers string, opt Options) (*Conn, error) {
	list, root, err := ParseServers(servers)
	if err != nil {
		return nil, err
	}
	if opt, err = opt.withDefaults(); err != nil {
		return nil, err
	}
	c := &Conn{
		opt: opt, root: chroot(root), servers: shuffled(list), auth: slices.Clone(opt.Auth),
		finished: make(chan struct{}), ready: make(chan struct{}),
		watches: watches{once: map[watchKey]*Watch{}}, trouble: map[string]error{},
		password: make([]byte, jute.PasswordSize),
	}
	if opt.Resume.ID != 0 {
		c.sid, c.password = opt.Resume.ID, opt.Resume.Password
	}
	c.life, c.endLife = context.WithCancel(context.Background())
	go c.run()
	return c, nil
}

// Dial does what Open does, and then waits until the session exists and the server has accepted the
// identities of the options.
func Dial(ctx context.Context, servers string, opt Options) (*Conn, error) {
	c, err := Open(servers, opt)
	if err != nil {
		return nil, err
	}
	err = c.Await(ctx)
	if err != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ended)
		return nil, &dialError{servers, err}
	}
	return c, nil
}

func shuffled(list []string) []string {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
