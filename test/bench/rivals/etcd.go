package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/zlockd/zlockd/test/cluster"
)

func openEtcd(addr string) (*clientv3.Client, error) {
	return openEtcdUntil(context.Background(), addr)
}

// openEtcdUntil opens a client whose requests end with ctx.
func openEtcdUntil(ctx context.Context, addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Context: ctx, Endpoints: strings.Split(addr, ","),
		DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

func openEtcdSession(ctx context.Context, addr string, ttl time.Duration) (*clientv3.Client,
	*concurrency.Session, error) {
	c, err := openEtcdUntil(ctx, addr)
	if err != nil {
		return nil, nil, err
	}
	session, err := concurrency.NewSession(c, concurrency.WithTTL(int(ttl.Seconds())))
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, session, nil
}

func etcdSession(addr string) (func(), error) {
	c, session, err := openEtcdSession(context.Background(), addr, time.Minute)
	return func() { session.Orphan(); c.Close() }, err
}

func newEtcdLocker(ctx context.Context, addr, path string, ttl time.Duration) (locker, error) {
	c, session, err := openEtcdSession(ctx, addr, ttl)
	if err != nil {
		return nil, err
	}
	return &etcdLocker{c, session, concurrency.NewMutex(session, path)}, nil
}

// etcdLocker has the mutex of etcd's own client.
type etcdLocker struct {
	c       *clientv3.Client
	session *concurrency.Session
	m       *concurrency.Mutex
}

func (l *etcdLocker) lock(ctx context.Context) error   { return l.m.Lock(ctx) }
func (l *etcdLocker) unlock(ctx context.Context) error { return l.m.Unlock(ctx) }
func (l *etcdLocker) close() {
	_ = l.session.Close()
	_ = l.c.Close()
}

func etcdLeader(e *cluster.Ensemble) (*cluster.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		for _, v := range e.Servers {
			k, err := openEtcd(v.Client)
			if err != nil {
				continue
			}
			s, err := k.Status(ctx, v.Client)
			k.Close()
			if err == nil && s.Leader != 0 && s.Leader == s.Header.MemberId {
				return v, nil
			}
		}
	}
	return nil, errors.New("no leader")
}

func etcdVisit(ctx context.Context, addr string) error {
	k, err := openEtcd(addr)
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

func newEtcdKeeper(addr string) (keeper, error) {
	c, err := openEtcd(addr)
	return etcdKeeper{c}, err
}

// etcdKeeper is one client. Its server answers reads without asking the leader, as a ZooKeeper does.
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
	var mu sync.Mutex // guards `next`, `done` and `err`
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
