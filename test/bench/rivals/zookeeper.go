package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// zookeeper() returns the kind of server for zlockd or ZooKeeper. The locks are those of package client.
func zookeeper(name string, k cluster.Kind) kind {
	return kind{
		name: name, options: cluster.Options{Kind: k, JVM: []string{"-Xmx1g"}},
		about: func(addr string) string {
			for line := range strings.Lines(cluster.Word(addr, "srvr")) {
				if v, ok := strings.CutPrefix(line, "Zookeeper version: "); ok {
					return strings.TrimSpace(v) + "; a sync before every answer; package client's Mutex"
				}
			}
			return ""
		},
		locker: func(ctx context.Context, addr, path string, ttl time.Duration) (locker, error) {
			c, err := client.Dial(ctx, addr, client.WithSessionTimeout(ttl),
				client.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				return nil, err
			}
			return &zkLocker{c: c, m: c.Mutex("/rivals" + path)}, nil
		},
		session: func(addr string) (func(), error) {
			c, err := open(addr)
			return func() { c.Close() }, err
		},
		keeper: func(addr string) (keeper, error) {
			c, err := open(addr)
			return &zkKeeper{c: c, made: map[string]bool{}}, err
		},
		visit:  zkVisit,
		leader: (*cluster.Ensemble).AwaitLeader,
	}
}

func open(addr string) (*wire.Pipe, error) { return wire.OpenPipe(addr, 40*time.Second) }

type zkLocker struct {
	c     *client.Client
	m     *client.Mutex
	lease *client.Lease
}

func (l *zkLocker) lock(ctx context.Context) (err error) {
	l.lease, err = l.m.Lock(ctx)
	return err
}
func (l *zkLocker) unlock(ctx context.Context) error { return l.lease.Unlock(ctx) }
func (l *zkLocker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = l.c.Close(ctx)
}

func zkVisit(ctx context.Context, addr string) error {
	c, err := open(addr)
	if err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		c.SetDeadline(deadline)
	}
	defer context.AfterFunc(ctx, c.Drop)()
	c.Create("/visit-", nil, jute.FlagEphemeralSequential)
	if _, err := c.Do(); err != nil {
		c.Drop()
		return err
	}
	return c.Close()
}

// zkKeeper is one session. Before its first key in a directory it makes the directory.
type zkKeeper struct {
	c    *wire.Pipe
	made map[string]bool
}

func (k *zkKeeper) close() { k.c.Close() }

// send() appends the request of an operation. If the key is the first in its directory, it first appends a
// request that creates the directory, and then returns 1. Otherwise it returns 0.
func (k *zkKeeper) send(o op) (more int) {
	switch o.verb {
	case read:
		k.c.Get(o.key, false)
	case write:
		k.c.Set(o.key, record)
	case insert:
		if dir := o.key[:strings.LastIndexByte(o.key, '/')]; !k.made[dir] {
			k.made[dir] = true
			k.c.Create(dir, nil, jute.FlagPersistent)
			more = 1
		}
		k.c.Create(o.key, record, jute.FlagPersistent)
	}
	return more
}

func (k *zkKeeper) do(o op) error {
	for range k.send(o) {
		if err := k.answer(); err != nil {
			return err
		}
	}
	return k.answer()
}

func (k *zkKeeper) answer() error {
	if !k.c.Ready() {
		if err := k.c.Flush(); err != nil {
			return err
		}
	}
	r, err := k.c.Next()
	if err == nil && r.Code != jute.OK {
		err = r.Code
	}
	return err
}

func (k *zkKeeper) keepBusy(depth int, end time.Time, next func() op, done func(time.Duration)) error {
	k.c.SetDeadline(end.Add(30 * time.Second))
	defer k.c.SetDeadline(time.Time{})
	type sent struct {
		at   time.Time
		more int
	}
	var queue []sent
	begin := func() {
		if o := next(); o.key != "" {
			queue = append(queue, sent{time.Now(), k.send(o)})
		}
	}
	for range depth {
		begin()
	}
	for len(queue) > 0 {
		for range 1 + queue[0].more {
			if err := k.answer(); err != nil {
				return err
			}
		}
		now := time.Now()
		took := now.Sub(queue[0].at)
		queue = append(queue[:0], queue[1:]...)
		if now.Before(end) {
			done(took)
			begin()
		}
	}
	return nil
}
