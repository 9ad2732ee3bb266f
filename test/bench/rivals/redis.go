package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var redisToken atomic.Int64

func newRedisLocker(_ context.Context, addr, path string, ttl time.Duration) (locker, error) {
	return &redisLocker{redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1}), path,
		fmt.Sprint(os.Getpid(), redisToken.Add(1)), ttl}, nil
}

// redisLocker has the usual lock of Redis: a key with a random value and an expiry. A
// client sets the key if it does not exist, and deletes it if the value is its own. Redis does
// not announce a release, so a waiter asks again every millisecond.
type redisLocker struct {
	c           *redis.Client
	path, token string
	ttl         time.Duration
}

var redisUnlock = redis.NewScript(
	`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)

func (l *redisLocker) lock(ctx context.Context) error {
	for {
		err := l.c.SetArgs(ctx, l.path, l.token, redis.SetArgs{Mode: "NX", TTL: l.ttl}).Err()
		if !errors.Is(err, redis.Nil) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

func (l *redisLocker) unlock(ctx context.Context) error {
	return redisUnlock.Run(ctx, l.c, []string{l.path}, l.token).Err()
}
func (l *redisLocker) close() { _ = l.c.Close() }
