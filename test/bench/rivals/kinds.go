package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
)

// kind is a kind of server.
type kind struct {
	name    string
	options cluster.Options
	about   func(addr string) string // the version, and how a lock is made
	// locker() opens a client of the servers at `addr`, a list with commas. A client that dies loses its lock
	// after the time `ttl`. The opening fails when ctx ends.
	locker func(ctx context.Context, addr, path string, ttl time.Duration) (locker, error)
	// session() opens an idle session, and returns the function that ends it; nil: there are no sessions.
	session func(addr string) (end func(), err error)

	// The functions below are for clusters of three servers that keep keys; nil: only locks are measured.
	keeper func(addr string) (keeper, error)
	// visit() opens a client, makes a key that ends with the client, and closes the client.
	visit  func(ctx context.Context, addr string) error
	leader func(*cluster.Ensemble) (*cluster.Server, error)
}

// locker is a client with a lock and its own connection.
type locker interface {
	lock(context.Context) error
	unlock(context.Context) error
	close()
}

// keeper is a client that keeps keys, for one goroutine.
type keeper interface {
	do(op) error
	// keepBusy keeps `depth` operations in flight until `end`, and calls done() for each complete operation.
	keepBusy(depth int, end time.Time, next func() op, done func(time.Duration)) error
	close()
}

var kinds = []kind{
	zookeeper("zlockd", cluster.Zlockd),
	zookeeper("ZooKeeper", cluster.ZooKeeper),
	{
		name: "etcd",
		options: cluster.Options{Kind: cluster.Other, Command: []string{"etcd", "--name", "{id}",
			"--data-dir", "data", "--listen-client-urls", "http://{client}",
			"--advertise-client-urls", "http://{client}",
			"--listen-peer-urls", "http://{peer}", "--initial-advertise-peer-urls", "http://{peer}",
			"--initial-cluster", "{peer-urls}", "--quota-backend-bytes", "8000000000", "--log-level", "panic"}},
		about: func(string) string {
			return version("etcd", "--version") +
				"; a sync before every answer; concurrency.Mutex, a connection for each client"
		},
		locker: newEtcdLocker, session: etcdSession, keeper: newEtcdKeeper, visit: etcdVisit, leader: etcdLeader,
	},
	{
		name: "Redis",
		options: cluster.Options{Kind: cluster.Other, Command: []string{"redis-server", "--bind", "127.0.0.1",
			"--port", "{port}", "--appendonly", "yes", "--appendfsync", "always", "--save", "",
			"--maxclients", "15000"}},
		about: func(string) string {
			return version("redis-server", "--version") +
				"; appendfsync always; SET NX PX, asked again every ms, and delete if own; its time " +
				"counts from the taking"
		},
		locker: newRedisLocker,
	},
}

func version(argv ...string) string {
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// servers are running servers of a kind.
type servers struct {
	kind
	*cluster.Ensemble
}

// addr() returns the address of server i modulo the number of servers.
func (v servers) addr(i int) string { return v.Servers[i%len(v.Servers)].Client }

// startAll starts n servers of each kind that the settings name. It leaves out kinds that are not installed
// and, if n is more than 1, kinds that are measured only with one server.
func startAll(s *settings, dir string, n int) (list []servers) {
	for _, k := range kinds {
		if s.only != "" && !slices.Contains(strings.Split(s.only, ","), k.name) || n > 1 && k.keeper == nil {
			continue
		}
		o := k.options
		o.Dir, o.Nodes, o.ReadyTimeout = filepath.Join(dir, fmt.Sprint(k.name, n)), n, 5*time.Minute
		e, err := cluster.Start(o)
		if err != nil {
			fmt.Printf("* %s, %d server(s): left out: %v\n", k.name, n, err)
			continue
		}
		list = append(list, servers{k, e})
	}
	return list
}
