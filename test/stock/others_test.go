//go:build stock

package stock

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
)

// otherLock is a lock in a server that is not zlockd: a row with a unique
// key, or a key with a time to live.
type otherLock interface {
	// take() tries once to take the lock.
	take(name, owner string, ttl time.Duration) (bool, error)
	// give() gives the lock back, and reports whether the owner still had it.
	give(name, owner string) (bool, error)
	close()
}

// daemon() starts a program that ends with the test.
func daemon(t *testing.T, as *syscall.Credential, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// redisConn speaks as much of Redis's protocol as a lock needs.
type redisConn struct {
	net.Conn
	in *bufio.Reader
}

func startRedis(t *testing.T, more ...string) (addr string, cmd *exec.Cmd) {
	t.Helper()
	need(t, "/usr/bin/redis-server")
	ports := must.Get(cluster.FreePorts(1))(t)
	_, port, _ := net.SplitHostPort(ports[0])
	cmd = daemon(t, nil, append([]string{"/usr/bin/redis-server", "--port", port, "--bind", "127.0.0.1", "--dir",
		t.TempDir()}, more...)...)
	must.Await(t, "redis-server answers", time.Minute, func() bool {
		c, err := dialRedis(ports[0])
		if err != nil {
			return false
		}
		defer c.close()
		got, err := c.do("PING")
		return err == nil && got == "PONG"
	})
	return ports[0], cmd
}

func dialRedis(addr string) (*redisConn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &redisConn{c, bufio.NewReader(c)}, nil
}

// do() runs a command. An answer of nil is returned as "".
func (c *redisConn) do(args ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return "", err
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	switch n, _ := strconv.Atoi(line[1:]); {
	case line[0] == '-':
		return "", errors.New(line)
	case line[0] == '$' && n >= 0:
		body := make([]byte, n+2)
		_, err := io.ReadFull(c.in, body)
		return string(body[:n]), err
	case line[0] == '$':
		return "", nil
	}
	return line[1:], nil
}

// giveScript compares and deletes in one step, as the manual of SET says.
const giveScript = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`

func (c *redisConn) take(name, owner string, ttl time.Duration) (bool, error) {
	got, err := c.do("SET", name, owner, "NX", "PX", strconv.FormatInt(ttl.Milliseconds(), 10))
	return got == "OK", err
}

func (c *redisConn) give(name, owner string) (bool, error) {
	got, err := c.do("EVAL", giveScript, "1", name, owner)
	return got == "1", err
}

func (c *redisConn) close() { c.Conn.Close() }

// pgConn speaks as much of PostgreSQL's protocol as simple queries need, to a
// server that trusts every host on loopback.
type pgConn struct {
	net.Conn
	in *bufio.Reader
}

const pgBin = "/usr/lib/postgresql/15/bin/"

func postgresUser(t *testing.T) *syscall.Credential {
	t.Helper()
	as := must.Get(cluster.PostgresUser())(t)
	return as
}

// pgDir returns an empty directory that PostgreSQL may use.
func pgDir(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "zlockd-pg-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if as := postgresUser(t); as != nil {
		must.OK(t, os.Chown(dir, int(as.Uid), int(as.Gid)))
	}
	return dir
}

func pgRun(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: postgresUser(t)}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// startPostgres starts a server with the data in `dir`. If `dir` has no data, it runs initdb first.
func startPostgres(t *testing.T, dir string) (addr string, cmd *exec.Cmd) {
	t.Helper()
	need(t, pgBin+"postgres")
	if _, err := os.Stat(filepath.Join(dir, "PG_VERSION")); err != nil {
		pgRun(t, pgBin+"initdb", "-D", dir, "-U", "postgres", "-A", "trust", "--no-sync")
	}
	ports := must.Get(cluster.FreePorts(1))(t)
	_, port, _ := net.SplitHostPort(ports[0])
	cmd = daemon(t, postgresUser(t), pgBin+"postgres", "-D", dir, "-p", port, "-h", "127.0.0.1", "-k", dir)
	must.Await(t, "postgres answers", time.Minute, func() bool {
		c, err := dialPostgres(ports[0])
		if err != nil {
			return false
		}
		c.close()
		return true
	})
	return ports[0], cmd
}

func dialPostgres(addr string) (*pgConn, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &pgConn{conn, bufio.NewReader(conn)}
	hello := binary.BigEndian.AppendUint32(nil, 3<<16)
	hello = append(hello, "user\x00postgres\x00database\x00postgres\x00\x00"...)
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(hello)+4)),
		hello...)); err != nil {
		conn.Close()
		return nil, err
	}
	if _, _, err := c.answer(); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// answer() reads until the server is ready, and returns the command's tag and the first value of the first
// row.
func (c *pgConn) answer() (tag, value string, err error) {
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(c.in, head); err != nil {
			return "", "", err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(c.in, body); err != nil {
			return "", "", err
		}
		switch head[0] {
		case 'C':
			tag = strings.TrimRight(string(body), "\x00")
		case 'D':
			if n := int(int32(binary.BigEndian.Uint32(body[2:]))); value == "" && n > 0 {
				value = string(body[6 : 6+n])
			}
		case 'E':
			err = errors.New(strings.ReplaceAll(string(body), "\x00", " "))
		case 'Z':
			return tag, value, err
		}
	}
}

func (c *pgConn) query(format string, args ...any) (tag, value string, err error) {
	text := fmt.Sprintf(format, args...) + "\x00"
	msg := append([]byte{'Q'}, binary.BigEndian.AppendUint32(nil, uint32(len(text)+4))...)
	if _, err := c.Write(append(msg, text...)); err != nil {
		return "", "", err
	}
	return c.answer()
}

func (c *pgConn) prepare() error {
	_, _, err := c.query("CREATE TABLE IF NOT EXISTS lock (name text PRIMARY KEY, owner text)")
	return err
}

// take() inserts a row. The unique key lets only one client succeed. Only a delete ends the lock, so the ttl
// has no effect.
func (c *pgConn) take(name, owner string, _ time.Duration) (bool, error) {
	tag, _, err := c.query("INSERT INTO lock VALUES ('%s', '%s') ON CONFLICT DO NOTHING", name, owner)
	return tag == "INSERT 0 1", err
}

func (c *pgConn) give(name, owner string) (bool, error) {
	tag, _, err := c.query("DELETE FROM lock WHERE name = '%s' AND owner = '%s'", name, owner)
	return tag == "DELETE 1", err
}

func (c *pgConn) close() { c.Conn.Close() }
