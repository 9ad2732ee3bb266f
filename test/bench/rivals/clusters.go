package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

var clusterKinds = []struct {
	name  string
	start func(dir string) (cluster3, error)
}{
	{"zlockd", func(dir string) (cluster3, error) { return startZK3(cluster.Zlockd, dir) }},
	{"ZooKeeper", func(dir string) (cluster3, error) { return startZK3(cluster.ZooKeeper, dir) }},
	{"etcd", startEtcd3},
}

// zk3 are three servers of zlockd or ZooKeeper.
type zk3 struct{ e *cluster.Ensemble }

func startZK3(kind cluster.Kind, dir string) (cluster3, error) {
	o, err := zkOptions(kind, dir)
	if err != nil {
		return nil, err
	}
	o.Nodes = 3
	e, err := cluster.Start(o)
	return zk3{e}, err
}

func (z zk3) pids() []int { return z.e.Pids() }
func (z zk3) kill(i int)  { z.e.Servers[i].Kill() }
func (z zk3) close()      { z.e.Close() }

func (z zk3) restart(i int) error {
	if err := z.e.Servers[i].Spawn(); err != nil {
		return err
	}
	return z.e.Servers[i].WaitReady()
}

func (z zk3) leader() (int, error) {
	l, err := z.e.AwaitLeader()
	if err != nil {
		return 0, err
	}
	return l.ID - 1, nil
}

func (z zk3) open(i int) (*wire.Pipe, error) {
	return wire.OpenPipe(z.e.Servers[i%3].Client, 40*time.Second)
}

func (z zk3) visit(ctx context.Context, i int) error {
	c, err := z.open(i)
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

func (z zk3) client(i int) (keeper, error) {
	c, err := z.open(i)
	return &zkKeeper{c: c, made: map[string]bool{}}, err
}

// zkKeeper is one session. It makes the directory of a key that it inserts before the first of it.
type zkKeeper struct {
	c    *wire.Pipe
	made map[string]bool
}

func (k *zkKeeper) close() { k.c.Close() }

// send appends an operation's request, and says whether the answer is that of the request before it.
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

// etcd3 are three servers of etcd. Reads are answered by the server that is asked, as ZooKeeper's are.
type etcd3 struct {
	argv    [3][]string
	dirs    [3]string
	servers [3]*process
}

func startEtcd3(dir string) (cluster3, error) {
	ports, err := cluster.FreePorts(6)
	if err != nil {
		return nil, err
	}
	var list []string
	for i := range 3 {
		list = append(list, fmt.Sprintf("s%d=http://%s", i, ports[3+i]))
	}
	c := &etcd3{}
	for i := range 3 {
		client, peer := "http://"+ports[i], "http://"+ports[3+i]
		c.dirs[i] = filepath.Join(dir, fmt.Sprint(i))
		c.argv[i] = []string{"etcd", "--name", fmt.Sprintf("s%d", i), "--data-dir", "data",
			"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
			"--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(list, ","),
			"--quota-backend-bytes", "8000000000", "--log-level", "panic"}
		if c.servers[i], err = spawn(c.dirs[i], ports[i], c.argv[i]...); err != nil {
			c.close()
			return nil, err
		}
	}
	for _, p := range c.servers {
		if err := p.listens(); err != nil {
			c.close()
			return nil, err
		}
	}
	_, err = c.leader()
	return c, err
}

func (c *etcd3) pids() (list []int) {
	for _, p := range c.servers {
		list = append(list, p.cmd.Process.Pid)
	}
	return list
}

func (c *etcd3) kill(i int) { c.servers[i].close() }
func (c *etcd3) close() {
	for _, p := range c.servers {
		if p != nil {
			p.close()
		}
	}
}

func (c *etcd3) restart(i int) (err error) {
	if c.servers[i], err = spawn(c.dirs[i], c.servers[i].addr, c.argv[i]...); err != nil {
		return err
	}
	return c.servers[i].listens()
}

func (c *etcd3) open(i int) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{c.servers[i%3].addr}, DialTimeout: 5 * time.Second,
		Logger: zap.NewNop()})
}

func (c *etcd3) leader() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		for i, p := range c.servers {
			k, err := c.open(i)
			if err != nil {
				continue
			}
			s, err := k.Status(ctx, p.addr)
			k.Close()
			if err == nil && s.Leader != 0 && s.Leader == s.Header.MemberId {
				return i, nil
			}
		}
	}
	return 0, errors.New("no leader")
}

func (c *etcd3) visit(ctx context.Context, i int) error {
	k, err := c.open(i)
	if err != nil {
		return err
	}
	defer k.Close()
	lease, err := k.Grant(ctx, 40)
	if err != nil {
		return err
	}
	if _, err := k.Put(ctx, fmt.Sprintf("visit-%x", lease.ID), "", clientv3.WithLease(lease.ID)); err != nil {
		return err
	}
	_, err = k.Revoke(ctx, lease.ID)
	return err
}

func (c *etcd3) client(i int) (keeper, error) {
	k, err := c.open(i)
	return etcdKeeper{k}, err
}

type etcdKeeper struct{ c *clientv3.Client }

func (k etcdKeeper) close() { k.c.Close() }

func (k etcdKeeper) do(o op) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if o.verb == read {
		_, err = k.c.Get(ctx, o.key, clientv3.WithSerializable())
	} else {
		_, err = k.c.Put(ctx, o.key, string(record))
	}
	return err
}

func (k etcdKeeper) keepBusy(depth int, end time.Time, next func() op, done func(time.Duration)) (err error) {
	var mu sync.Mutex // guards next, done and err
	var wg sync.WaitGroup
	for range depth {
		wg.Go(func() {
			for {
				mu.Lock()
				o := next()
				mu.Unlock()
				if o.key == "" {
					return
				}
				from := time.Now()
				e := k.do(o)
				now := time.Now()
				mu.Lock()
				if e != nil {
					err = e
				} else if now.Before(end) {
					done(now.Sub(from))
				}
				stop := err != nil || !now.Before(end)
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	wg.Wait()
	return err
}

// startClusters starts those of the clusters that are installed.
func startClusters(s *settings, dir string) (names []string, list []cluster3) {
	for _, k := range clusterKinds {
		if !s.wants(k.name) {
			continue
		}
		c, err := k.start(filepath.Join(dir, k.name+"-3"))
		if err != nil {
			fmt.Printf("* three servers of %s: left out: %v\n", k.name, err)
			continue
		}
		names, list = append(names, k.name), append(list, c)
	}
	return names, list
}
