//go:build stock

package stock

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// database is a database server from a Debian package. The test sends it statements with its command-line
// client.
type database struct {
	t       *testing.T
	client  []string // the client's command: reads statements on its input, prints rows
	begin   string   // statement that begins a transaction
	serial  string   // the type of an id that the database counts up by itself
	open    string   // query: how many unfinished transactions have written
	blocked string   // query: how many transactions wait for others
}

func (d *database) command() *exec.Cmd { return exec.Command(d.client[0], d.client[1:]...) }

// ask() runs statements, and returns what they print.
func (d *database) ask(statements string) (string, error) {
	cmd := d.command()
	cmd.Stdin = strings.NewReader(statements)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", statements, err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// run() starts a server and waits for its first answer. The server runs as the user `as`.
func (d *database) run(as *syscall.Credential, dir string, argv ...string) {
	d.t.Helper()
	log := must.Get(os.Create(filepath.Join(d.t.TempDir(), "log")))(d.t)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	must.OK(d.t, cmd.Start())
	d.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		log.Close()
	})
	must.Await(d.t, argv[0]+" answers", time.Minute, func() bool {
		_, err := d.ask("SELECT 1;")
		return err == nil
	})
}

func startPostgreSQL(t *testing.T) *database {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		found = []string{"/usr/lib/postgresql"}
	}
	bin := found[len(found)-1]
	need(t, bin+"/initdb", bin+"/postgres", "/usr/bin/psql")
	as := must.Get(cluster.PostgresUser())(t)
	// This is not the test's own directory, because that user cannot enter it.
	dir := must.Get(os.MkdirTemp("", "zlockd-pg-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if as != nil {
		must.OK(t, os.Chown(dir, int(as.Uid), int(as.Gid)))
	}
	initdb := exec.Command(bin+"/initdb", "-D", dir+"/data", "-U", "postgres", "-A", "trust", "-N")
	initdb.Dir, initdb.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as}
	out, err := initdb.CombinedOutput()
	must.OK(t, err, "%s", out)
	_, port, err := net.SplitHostPort(must.Get(cluster.FreePorts(1))(t)[0])
	must.OK(t, err)
	d := &database{t: t, begin: "BEGIN;", serial: "bigserial PRIMARY KEY",
		open: "SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND " +
			"state LIKE 'idle in%';",
		blocked: "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock';",
		client: []string{"/usr/bin/psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", dir, "-p", port,
			"-U", "postgres"}}
	d.run(as, dir, bin+"/postgres", "-D", dir+"/data", "-p", port, "-h", "", "-k", dir, "-F")
	return d
}

func startMariaDB(t *testing.T) *database {
	need(t, "mariadbd", "mariadb-install-db", "mariadb")
	dir := must.Get(os.MkdirTemp("", "zlockd-maria-"))(t) // the path of a socket must be short
	t.Cleanup(func() { os.RemoveAll(dir) })
	install := exec.Command("mariadb-install-db", "--no-defaults", "--datadir="+dir+"/data", "--user=root",
		"--auth-root-authentication-method=normal", "--skip-test-db")
	out, err := install.CombinedOutput()
	must.OK(t, err, "%s", out)
	// The server renews its list of transactions only after a tenth of a second without a query.
	const count = "DO SLEEP(0.2); SELECT count(*) FROM information_schema.innodb_trx WHERE "
	d := &database{t: t, begin: "START TRANSACTION;", serial: "bigint AUTO_INCREMENT PRIMARY KEY",
		open: count + "trx_rows_modified > 0;", blocked: count + "trx_state = 'LOCK WAIT';",
		client: []string{"mariadb", "--no-defaults", "-BN", "-S", dir + "/sock", "-u", "root", "shop"}}
	must.OK(t, os.Mkdir(dir+"/data/shop", 0o700)) // makes the database `shop`
	d.run(nil, dir, must.Get(exec.LookPath("mariadbd"))(t), "--no-defaults", "--datadir="+dir+"/data",
		"--user=root", "--socket="+dir+"/sock", "--skip-networking", "--pid-file="+dir+"/pid",
		"--innodb-flush-log-at-trx-commit=0")
	return d
}

// TestFencesInDatabases pauses a holder of a lock until another client has the lock. Then the paused holder
// writes into a database with the functions of examples/sql, and the write changes nothing. The writes of
// many holders come in the order of their tokens.
func TestFencesInDatabases(t *testing.T) {
	beside(t)
	for name, start := range map[string]func(*testing.T) *database{"postgresql": startPostgreSQL,
		"mariadb": startMariaDB} {
		t.Run(name, func(t *testing.T) {
			d := start(t)
			functions := string(must.Get(os.ReadFile("../../examples/sql/" + name + ".sql"))(t))
			for range 2 { // twice, because an operator may install the functions again
				must.Get(d.ask(functions))(t)
			}
			must.Get(d.ask("CREATE TABLE stock (id int PRIMARY KEY, amount int, who varchar(20));" +
				"INSERT INTO stock VALUES (7, 100, 'new');" +
				"CREATE TABLE written (id " + d.serial + ", token bigint);"))(t)
			t.Run("a paused holder", d.pausedHolder)
			t.Run("a later holder waits", func(t *testing.T) { d.othersWait(t, 2, 3, "1 2 3") })
			t.Run("a former holder waits", func(t *testing.T) { d.othersWait(t, 3, 2, "1 3") })
			t.Run("many holders", d.manyHolders)
			t.Run("nothing given", func(t *testing.T) {
				rows := must.Get(d.ask("SELECT count(*) FROM stock WHERE zlock_fence('/n', NULL);"))(t)
				expect.Equal(t, rows, "0", "rows without a token")
			})
		})
	}
}

// pausedHolder pauses a writer after it has got the lock and before it writes. The writer's ticket lasts for
// four seconds. The writer continues after the next holder has written.
func (d *database) pausedHolder(t *testing.T) {
	port := must.Get(cluster.FreePorts(1))(t)[0]
	o := generous()
	o.Kind, o.Nodes = cluster.Zlockd, 1
	o.Flags = append(o.Flags, "--ticket-addr", port)
	cluster.Run(t, o)
	const script = `set -e
T=$(head -c 24 /dev/urandom | base64)
token=$(curl -sf -X POST -H "Zlock-Ticket: $T" "$URL/v1/locks/jobs/nightly?ttl=4s&wait=1m" |
	sed 's/.*"token":"\([0-9]*\)".*/\1/')
echo $token
read go
"$@" <<EOF
UPDATE stock SET amount = amount - 1, who = '$WHO' WHERE id = 7 AND zlock_fence('/jobs/nightly', $token);
EOF
`
	type writer struct {
		cmd   *exec.Cmd
		in    *os.File
		token int64
	}
	hold := func(who string) *writer {
		cmd := exec.Command("bash", append([]string{"-c", script, "writer"}, d.client...)...)
		cmd.Env = append(os.Environ(), "URL=http://"+port, "WHO="+who)
		r, in, err := os.Pipe()
		must.OK(t, err)
		cmd.Stdin, cmd.Stderr = r, os.Stderr
		out := must.Get(cmd.StdoutPipe())(t)
		must.OK(t, cmd.Start())
		r.Close()
		t.Cleanup(func() { _ = cmd.Process.Kill(); in.Close() })
		w := &writer{cmd: cmd, in: in}
		_, err = fmt.Fscan(out, &w.token)
		must.OK(t, err, "the token of %s", who)
		return w
	}
	write := func(w *writer) {
		fmt.Fprintln(w.in)
		must.OK(t, w.cmd.Wait())
	}
	first := hold("first")
	must.OK(t, first.cmd.Process.Signal(syscall.SIGSTOP))
	second := hold("second") // the second hold begins when the first one has expired
	expect.That(t, second.token > first.token, "token %d after %d", second.token, first.token)
	write(second)
	must.OK(t, first.cmd.Process.Signal(syscall.SIGCONT))
	write(first)
	row := must.Get(d.ask("SELECT amount, who FROM stock WHERE id = 7;"))(t)
	expect.List(t, strings.FieldsFunc(row, func(r rune) bool { return r == '|' || r == '\t' }),
		[]string{"99", "second"}, "the row after a late write")
}

// writeOf returns a statement by which a holder of the lock writes.
func writeOf(path string, token int) string {
	return fmt.Sprintf("INSERT INTO written (token) SELECT %d WHERE zlock_fence('%s', %[1]d);", token, path)
}

// othersWait keeps the transaction of one holder open while another holder writes. The other holder waits
// until the transaction ends, and then writes if its token is newer.
func (d *database) othersWait(t *testing.T, open, other int, want string) {
	must.Get(d.ask("DELETE FROM written; DELETE FROM zlock_fences;" + writeOf("/open", 1)))(t)
	cmd := d.command()
	in := must.Get(cmd.StdinPipe())(t)
	cmd.Stderr = os.Stderr
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	fmt.Fprintln(in, d.begin, writeOf("/open", open))
	must.Await(t, "the first transaction has its row", time.Minute, func() bool {
		n, err := d.ask(d.open)
		return err == nil && n == "1"
	})
	done := make(chan error, 1)
	go func() {
		_, err := d.ask(writeOf("/open", other))
		done <- err
	}()
	must.Await(t, "the other holder waits", time.Minute, func() bool {
		n, err := d.ask(d.blocked)
		return err == nil && n == "1"
	})
	fmt.Fprintln(in, "COMMIT;")
	must.OK(t, in.Close())
	must.OK(t, cmd.Wait())
	must.OK(t, <-done)
	rows := must.Get(d.ask("SELECT token FROM written ORDER BY id;"))(t)
	expect.Equal(t, strings.Join(strings.Fields(rows), " "), want, "tokens that were written")
}

// manyHolders runs eight programs that write at once with rising and falling tokens. The stored token only
// rises.
func (d *database) manyHolders(t *testing.T) {
	must.Get(d.ask("DELETE FROM written;"))(t)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			var b strings.Builder
			for k := range 100 {
				token := 1 + (k*8+n*37)%800 // each program also has tokens that come too late
				b.WriteString(writeOf("/many", token) + "\n")
			}
			cmd := d.command()
			if cmd.Args[0] == "mariadb" {
				cmd.Args = append(cmd.Args, "--force") // goes on after a deadlock
			}
			cmd.Stdin = strings.NewReader(b.String())
			out, err := cmd.CombinedOutput()
			if err != nil && !strings.Contains(string(out), "eadlock") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	last, count := int64(0), 0
	for line := range strings.Lines(must.Get(d.ask("SELECT token FROM written ORDER BY id;"))(t) + "\n") {
		token := must.Get(strconv.ParseInt(strings.TrimSpace(line), 10, 64))(t)
		expect.That(t, token >= last, "token %d is written after %d", token, last)
		last = token
		count++
	}
	t.Logf("%d of 800 writes", count)
	expect.That(t, count >= 2 && count < 800, "%d of 800 writes: it checks nothing", count)
}

// TestTicketLockInJava compiles the class of examples/java, runs its tests, and pauses a holder.
func TestTicketLockInJava(t *testing.T) {
	beside(t)
	need(t, "javac", "java")
	classes := t.TempDir()
	sources := must.Get(filepath.Glob("../../examples/java/*.java"))(t)
	out, err := exec.Command("javac", append([]string{"-Xlint:all", "-Werror", "-d", classes},
		sources...)...).CombinedOutput()
	must.OK(t, err, "%s", out)
	port := must.Get(cluster.FreePorts(1))(t)[0]
	o := generous()
	o.Kind, o.Nodes = cluster.Zlockd, 1
	o.Flags = append(o.Flags, "--ticket-addr", port)
	cluster.Run(t, o)
	java := func(args ...string) *exec.Cmd {
		return exec.Command("java", append([]string{"-XX:TieredStopAtLevel=1", "-Xmx64m", "-cp", classes,
			"TicketLockTest", "http://" + port}, args...)...)
	}
	out, err = java().CombinedOutput()
	must.OK(t, err, "%s", out)
	expect.Has(t, string(out), "done")

	cmd := java("/paused")
	in := must.Get(cmd.StdinPipe())(t)
	lines := must.Get(cmd.StdoutPipe())(t)
	cmd.Stderr = os.Stderr
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var token int64
	_, err = fmt.Fscan(lines, &token)
	must.OK(t, err)
	must.OK(t, cmd.Process.Signal(syscall.SIGSTOP))
	r := must.Get(http.NewRequest(http.MethodPost, "http://"+port+"/v1/locks/paused?wait=1m", nil))(t)
	r.Header.Set("Zlock-Ticket", "secret-of-the-ticket-after-it")
	a := must.Get(http.DefaultClient.Do(r))(t)
	a.Body.Close()
	expect.Equal(t, a.StatusCode, 201, "the next holder")
	must.OK(t, cmd.Process.Signal(syscall.SIGCONT))
	fmt.Fprintln(in)
	var valid, lost string
	_, err = fmt.Fscan(lines, &valid, &lost)
	must.OK(t, err)
	expect.Equal(t, valid, "false", "the first word after the pause")
	expect.Equal(t, lost, "lost", "its close")
	_ = cmd.Wait()
}
