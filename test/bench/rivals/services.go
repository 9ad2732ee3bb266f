package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/test/bench/measure"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// service is a running server that offers locks.
type service interface {
	name() string
	settings() string
	locker(path string) (locker, error)
	// session opens an idle session, and returns the function that ends it; nil: the service has
	// no sessions.
	session() (end func(), err error)
	memory() float64 // resident, KB
	close()
}

// locker is a client with a lock and its own connection.
type locker interface {
	lock(context.Context) error
	unlock(context.Context) error
	close()
}

var kinds = []struct {
	name  string
	start func(dir string) (service, error)
}{
	{"zlockd", func(dir string) (service, error) { return startZK("zlockd", cluster.Zlockd, dir) }},
	{"ZooKeeper", func(dir string) (service, error) { return startZK("ZooKeeper", cluster.ZooKeeper, dir) }},
	{"etcd", startEtcd},
	{"Redis", startRedis},
}

// zkService is zlockd or ZooKeeper; the locks are those of package client.
type zkService struct {
	title string
	e     *cluster.Ensemble
}

// zkOptions says how a cluster of zlockd or ZooKeeper is started.
func zkOptions(kind cluster.Kind, dir string) (cluster.Options, error) {
	o := cluster.Options{Kind: kind, Dir: dir, JVM: []string{"-Xmx1g"},
		ReadyTimeout: 5 * time.Minute}
	if kind == cluster.Zlockd {
		// Built from the module that this one stands in.
		if o.Binary = os.Getenv("ZLOCKD_BIN"); o.Binary == "" {
			root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/zlockd/zlockd").Output()
			if err != nil {
				return o, fmt.Errorf("run me in test/bench/rivals: %w", err)
			}
			o.Binary = dir + ".bin"
			build := exec.Command("go", "build", "-o", o.Binary, "./cmd/zlockd")
			build.Dir = strings.TrimSpace(string(root))
			if out, err := build.CombinedOutput(); err != nil {
				return o, fmt.Errorf("build zlockd: %w: %s", err, out)
			}
		}
	}
	return o, nil
}

func startZK(title string, kind cluster.Kind, dir string) (service, error) {
	o, err := zkOptions(kind, dir)
	if err != nil {
		return nil, err
	}
	e, err := cluster.Start(o)
	if err != nil {
		return nil, err
	}
	return &zkService{title, e}, nil
}

func (s *zkService) name() string { return s.title }
func (s *zkService) settings() string {
	for line := range strings.Lines(cluster.Word(s.e.Servers[0].Client, "srvr")) {
		if v, ok := strings.CutPrefix(line, "Zookeeper version: "); ok {
			return strings.TrimSpace(v) + "; a sync before every answer; package client's Mutex"
		}
	}
	return ""
}
func (s *zkService) memory() float64 { return float64(measure.Resident(s.e.Servers[0].Pid())) / 1024 }
func (s *zkService) close()          { s.e.Close() }

func (s *zkService) session() (func(), error) {
	c, err := wire.OpenPipe(s.e.Servers[0].Client, 40*time.Second)
	if err != nil {
		return nil, err
	}
	return func() { c.Close() }, nil
}

func (s *zkService) locker(path string) (locker, error) {
	c, err := client.Dial(context.Background(), s.e.Servers[0].Client)
	if err != nil {
		return nil, err
	}
	return &zkLocker{c: c, m: c.Mutex("/rivals" + path)}, nil
}

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
func (l *zkLocker) close()                           { _ = l.c.Close(context.Background()) }

// process is a server that this program has started.
type process struct {
	cmd  *exec.Cmd
	addr string
}

// start starts a server whose arguments may contain {port}, {port2} and {dir}, and waits until
// it listens.
func start(dir string, argv ...string) (*process, error) {
	ports, err := cluster.FreePorts(2)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(ports[0])
	_, port2, _ := net.SplitHostPort(ports[1])
	r := strings.NewReplacer("{port}", port, "{port2}", port2, "{dir}", dir)
	for i := range argv {
		argv[i] = r.Replace(argv[i])
	}
	p, err := spawn(dir, ports[0], argv...)
	if err != nil {
		return nil, err
	}
	if err := p.listens(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// spawn starts a server in a directory and returns at once.
func spawn(dir, addr string, argv ...string) (*process, error) {
	bin, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(bin, argv[1:]...), addr: addr}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Dir = dir
	return p, p.cmd.Start()
}

// listens waits until the server listens.
func (p *process) listens() error {
	for range 2000 {
		if c, err := net.Dial("tcp", p.addr); err == nil {
			c.Close()
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("%s does not listen on %s", p.cmd.Path, p.addr)
}

func (p *process) memory() float64 { return float64(measure.Resident(p.cmd.Process.Pid)) / 1024 }
func (p *process) close() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func version(argv ...string) string {
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// etcdService is etcd; the locks are its own client's concurrency.Mutex.
type etcdService struct{ *process }

func startEtcd(dir string) (service, error) {
	p, err := start(dir, "etcd", "--data-dir", "{dir}/data", "--listen-client-urls", "http://127.0.0.1:{port}",
		"--advertise-client-urls", "http://127.0.0.1:{port}", "--listen-peer-urls", "http://127.0.0.1:{port2}",
		"--initial-advertise-peer-urls", "http://127.0.0.1:{port2}", "--initial-cluster",
		"default=http://127.0.0.1:{port2}", "--log-level", "error")
	if err != nil {
		return nil, err
	}
	return etcdService{p}, nil
}

func (etcdService) name() string { return "etcd" }
func (etcdService) settings() string {
	return version("etcd", "--version") +
		"; defaults: a sync before every answer; concurrency.Mutex, a connection for each client"
}

func (s etcdService) open() (*clientv3.Client, *concurrency.Session, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.addr}, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	session, err := concurrency.NewSession(c, concurrency.WithTTL(60))
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, session, nil
}

func (s etcdService) session() (func(), error) {
	c, session, err := s.open()
	if err != nil {
		return nil, err
	}
	return func() { session.Orphan(); c.Close() }, nil
}

func (s etcdService) locker(path string) (locker, error) {
	c, session, err := s.open()
	if err != nil {
		return nil, err
	}
	return &etcdLocker{c, session, concurrency.NewMutex(session, path)}, nil
}

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

// redisService is Redis; the lock is the usual one: a key with a random value and an expiry. A
// client sets the key if it does not exist, and deletes it if the value is its own. Redis does
// not announce a release, so a waiter asks again every millisecond.
type redisService struct{ *process }

func startRedis(dir string) (service, error) {
	p, err := start(dir, "redis-server", "--bind", "127.0.0.1", "--port", "{port}", "--appendonly", "yes",
		"--appendfsync", "always",
		"--save", "", "--dir", "{dir}", "--maxclients", "15000")
	if err != nil {
		return nil, err
	}
	return redisService{p}, nil
}

func (redisService) name() string { return "Redis" }
func (redisService) settings() string {
	return version("redis-server", "--version") +
		"; appendfsync always; SET NX PX, asked again every ms, and delete if own"
}

func (redisService) session() (func(), error) { return nil, nil }

var redisToken atomic.Int64

func (s redisService) locker(path string) (locker, error) {
	return &redisLocker{redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: 1}), path,
		fmt.Sprint(redisToken.Add(1))}, nil
}

type redisLocker struct {
	c           *redis.Client
	path, token string
}

var redisUnlock = redis.NewScript(
	`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)

func (l *redisLocker) lock(ctx context.Context) error {
	for {
		err := l.c.SetArgs(ctx, l.path, l.token, redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err()
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
