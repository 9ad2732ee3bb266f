package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/zlockd/zlockd/test/cluster"
)

// postgres is a PostgreSQL that is started again whenever it dies.
type postgres struct {
	addr string
	dir  string
	pid  atomic.Int64
	stop chan struct{}
	done chan struct{}
}

func postgresProgram(name string) string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return name
	}
	return found[len(found)-1]
}

// startPostgres makes a server. Its data are in a directory that PostgreSQL's own user may read; the
// directories of the other servers are private.
func startPostgres() (*postgres, error) {
	as, err := cluster.PostgresUser()
	if err != nil {
		return nil, err
	}
	ports, err := cluster.FreePorts(1)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "zlockd-pg-")
	if err != nil {
		return nil, err
	}
	p := &postgres{addr: ports[0], dir: dir, stop: make(chan struct{}), done: make(chan struct{})}
	command := func(argv ...string) *exec.Cmd {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as, Pdeathsig: syscall.SIGINT}
		return cmd
	}
	if as != nil {
		err = os.Chown(dir, int(as.Uid), int(as.Gid))
	}
	if err == nil {
		var out []byte
		if out, err = command(postgresProgram("initdb"), "-D", dir+"/data", "-U", "postgres", "-A",
			"trust").CombinedOutput(); err != nil {
			err = fmt.Errorf("initdb: %w: %s", err, out)
		}
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	_, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		return nil, err
	}
	go func() {
		runtime.LockOSThread() // keep the thread: the kernel kills the server when this thread ends
		defer close(p.done)
		for {
			cmd := command(postgresProgram("postgres"), "-D", dir+"/data", "-p", port, "-h", "127.0.0.1",
				"-k", dir)
			if cmd.Start() == nil {
				p.pid.Store(int64(cmd.Process.Pid))
				_ = cmd.Wait()
			}
			select {
			case <-p.stop:
				return
			case <-time.After(20 * time.Millisecond): // time for the killed server's processes to end
			}
		}
	}()
	_, err = firstOf(func(ctx context.Context, _ int) error {
		return lockOnce(ctx, newPostgresLocker, p.addr, "/up")
	})
	if err != nil {
		p.close()
	}
	return p, err
}

func (p *postgres) kill() error { return syscall.Kill(int(p.pid.Load()), syscall.SIGKILL) }

func (p *postgres) close() {
	close(p.stop)
	_ = syscall.Kill(int(p.pid.Load()), syscall.SIGINT)
	<-p.done
	_ = os.RemoveAll(p.dir)
}

// postgresLocker has an advisory lock of its connection.
type postgresLocker struct {
	c   *pgconn.PgConn
	key int64
}

func newPostgresLocker(ctx context.Context, addr, path string, _ time.Duration) (locker, error) {
	c, err := pgconn.Connect(ctx, "postgres://postgres@"+addr+"/postgres?sslmode=disable")
	if err != nil {
		return nil, err
	}
	h := fnv.New64()
	_, _ = h.Write([]byte(path))
	return &postgresLocker{c, int64(h.Sum64())}, nil
}

func (l *postgresLocker) do(ctx context.Context, function string) error {
	_, err := l.c.Exec(ctx, fmt.Sprintf("SELECT %s(%d)", function, l.key)).ReadAll()
	return err
}

func (l *postgresLocker) lock(ctx context.Context) error   { return l.do(ctx, "pg_advisory_lock") }
func (l *postgresLocker) unlock(ctx context.Context) error { return l.do(ctx, "pg_advisory_unlock") }

func (l *postgresLocker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.c.Close(ctx)
}
