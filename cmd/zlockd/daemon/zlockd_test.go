package daemon

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/cmd/internal/release"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// daemonProcess is a zlockd in a process of its own.
type daemonProcess struct {
	cmd    *exec.Cmd
	stdout io.Reader
	stderr *must.Text
	ready  map[string]string // fields of the ready line
}

// launch() starts zlockd and waits for its ready line.
func launch(t *testing.T, args ...string) *daemonProcess {
	t.Helper()
	p := begin(t, args...)
	p.wait(t)
	return p
}

// begin() starts zlockd.
func begin(t *testing.T, args ...string) *daemonProcess {
	t.Helper()
	p := prepare(args...)
	p.begin(t)
	return p
}

// prepare() returns a zlockd that has not been started.
func prepare(args ...string) *daemonProcess {
	p := &daemonProcess{cmd: exec.Command(os.Args[0], args...), stderr: new(must.Text),
		ready: make(map[string]string)}
	p.cmd.Env = append(os.Environ(), "TEST_ZLOCKD_MAIN=1")
	p.cmd.Stderr = p.stderr
	return p
}

// begin() starts p.
func (p *daemonProcess) begin(t *testing.T) {
	t.Helper()
	var err error
	p.stdout, err = p.cmd.StdoutPipe()
	must.OK(t, err)
	must.OK(t, p.cmd.Start())
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
}

// wait waits for the ready line.
func (p *daemonProcess) wait(t *testing.T) {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() { p.cmd.Process.Kill() })
	defer timer.Stop()
	line, err := bufio.NewReader(p.stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("no ready line: %v\n%s", err, p.stderr)
	}
	form := regexp.MustCompile(
		`^zlockd ready client=\S+ peer=\S+ admin=\S+ mode=(standalone|leader|follower) version=\S+( secure=\S+)?\n$`)
	must.That(t, form.MatchString(line), "ready line %q", line)
	for field := range strings.FieldsSeq(line) {
		if k, v, ok := strings.Cut(field, "="); ok {
			p.ready[k] = v
		}
	}
}

// word() sends a four-letter word and returns the answer.
func (p *daemonProcess) word(t *testing.T, word string) string {
	t.Helper()
	c := must.Get(net.Dial("tcp", p.ready["client"]))(t)
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(c, word)
	c.(*net.TCPConn).CloseWrite()
	b := must.Get(io.ReadAll(c))(t)
	return string(b)
}

// session() opens a session, and waits until its requests no longer fail.
func (p *daemonProcess) session(t *testing.T) *zk.Conn {
	t.Helper()
	conn, events := must.Get2(zk.Connect([]string{p.ready["client"]}, 30*time.Second, zk.WithLogInfo(false)))(t)
	t.Cleanup(conn.Close)
	for (<-events).State != zk.StateHasSession {
	}
	return conn
}

// get() sends a request to the admin port.
func (p *daemonProcess) get(t *testing.T, path string) (int, string) {
	t.Helper()
	r := must.Get(http.Get("http://" + p.ready["admin"] + path))(t)
	defer r.Body.Close()
	b := must.Get(io.ReadAll(r.Body))(t)
	return r.StatusCode, string(b)
}

// stop() sends a signal and returns the exit code.
func (p *daemonProcess) stop(t *testing.T) int {
	t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// A user who starts a server with --dev and ends it gets no warning.
func TestDevServerHasNothingToWarnOf(t *testing.T) {
	for range 5 {
		p := launch(t, "--dev", "--client-addr", "127.0.0.1:0", "--admin-addr", "off")
		p.cmd.Process.Signal(os.Interrupt)
		p.cmd.Wait()
		code, log := p.cmd.ProcessState.ExitCode(), p.stderr.String()
		if strings.Contains(log, "this server was stalled") {
			continue // the machine was stalled: try again
		}
		expect.Equal(t, code, 0, "exit code")
		expect.Lacks(t, log, "level=WARN")
		expect.Has(t, log, "msg=stopped", "exit code: log")
		return
	}
	t.Error("the machine stands still again and again")
}

func TestDevServerAnswers(t *testing.T) {
	p := launch(t, "--dev", "--client-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--4lw-whitelist",
		"*")
	expect.Equal(t, p.ready["mode"], "standalone", "ready: mode")
	expect.Equal(t, p.ready["peer"], "off", "ready: peer")
	expect.Equal(t, p.word(t, "ruok"), "imok", "ruok answers")

	conn := p.session(t)
	defer conn.Close()
	for _, path := range []string{"/app", "/app/a", "/app/b"} {
		must.Get(conn.Create(path, []byte("x"), zk.FlagEphemeral*int32(strings.Count(path, "/")-1),
			zk.WorldACL(zk.PermAll)))(t)
	}
	_, _, _, err := conn.GetW("/app/a")
	must.OK(t, err)

	stats, ok := zk.FLWSrvr([]string{p.ready["client"]}, 30*time.Second)
	expect.That(t, ok, "go-zookeeper reads %+v", stats[0])
	expect.Equal(t, stats[0].Mode, zk.ModeStandalone, "go-zookeeper reads: mode")
	expect.That(t, stats[0].NodeCount >= 6, "go-zookeeper reads %+v", stats[0])
	cons, _ := zk.FLWCons([]string{p.ready["client"]}, 30*time.Second)
	if expect.Equal(t, len(cons[0].Clients), 1, "go-zookeeper reads cons: number of clients") {
		expect.Equal(t, cons[0].Clients[0].SessionID, conn.SessionID(), "go-zookeeper reads cons: session ID")
	}
	session := "0x" + strconv.FormatInt(conn.SessionID(), 16)
	for word, want := range map[string]string{
		"mntr": "zk_ephemerals_count\t2\n",
		"wchs": "1 connections watching 1 paths\nTotal watches:1\n",
		"wchc": session + "\n\t/app/a\n\n",
		"wchp": "/app/a\n\t" + session + "\n\n",
		"dump": "Sessions with Ephemerals (1):\n" + session + ":\n\t/app/a\n\t/app/b\n",
		"isro": "rw",
		"conf": "tickTime=2000\nmaxClientCnxns=60\nminSessionTimeout=4000\nmaxSessionTimeout=40000\n",
		"envi": "zookeeper.version=3.9.3-zlockd-" + release.Version() + ", built on ",
		"stat": "Mode: standalone\n",
		"dirs": "datadir_size: ",
	} {
		got := p.word(t, word)
		expect.Has(t, got, want, "%s answers %q without", word, got)
	}
	for _, path := range []string{"/commands/monitor", "/commands/connections", "/commands/dump", "/ready",
		"/health"} {
		code, body := p.get(t, path)
		expect.Equal(t, code, 200, "%s: exit code", path)
		expect.That(t, json.Valid([]byte(body)), "%s: %d %s", path, code, body)
	}
	code, body := p.get(t, "/metrics")
	for _, name := range []string{"znode_count ", "zk_znode_count ", "zlockd_serving 1", "go_goroutines ",
		"process_open_fds ", "jvm_pause_time_ms_count "} {
		expect.Equal(t, code, 200, "/metrics: exit code")
		expect.Has(t, body, "\n"+name, "/metrics: body")
	}
	conn.Close()
	if code := p.stop(t); code != exitOK {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
}

func TestDataSurvivesAndIsNotShared(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	args := []string{"--data-dir", dir, "--client-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}
	p := launch(t, args...)
	conn := p.session(t)
	must.Get(conn.Create("/kept", nil, 0, zk.WorldACL(zk.PermAll)))(t)
	conn.Close()
	info, err := os.Stat(dir)
	if expect.OK(t, err) {
		expect.Equal(t, info.Mode().Perm(), 0o700, "data directory: mode")
	}

	code, out := fail(t, args...)
	expect.Equal(t, code, exitFailed, "a second server on the same directory: exit code")
	expect.Has(t, out, "in use by another process", "a second server on the same directory: standard output")
	expect.Has(t, out, "--data-dir", "a second server on the same directory: standard output")
	code, out = fail(t, "--dev", "--client-addr", p.ready["client"])
	expect.Equal(t, code, exitFailed, "a second server on the same port: exit code")
	expect.Has(t, out, "address already in use", "a second server on the same port: standard output")
	expect.Has(t, out, "--client-addr", "a second server on the same port: standard output")
	if code := p.stop(t); code != exitOK {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}

	p = launch(t, args...)
	expect.Has(t, p.word(t, "srvr"), "Node count: 5\n", "after the restart")
}

// fail() runs a zlockd that must end by itself, and returns its exit code and output.
func fail(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append(args, "--admin-addr", "off")...)
	cmd.Env = append(os.Environ(), "TEST_ZLOCKD_MAIN=1")
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	out, _ := cmd.CombinedOutput()
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestZooConfigStarts(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	text := "# sample\ntickTime=1500\ninitLimit=10\nsyncLimit=5\ndataDir=" + dir +
		"/data\nclientPort=0\nclientPortAddress=127.0.0.1\n" +
		"maxClientCnxns=7\n4lw.commands.whitelist=ruok,conf,lsnp\nsuper.secret=hunter2\n"
	must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	p := launch(t, "--config", file, "--client-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0",
		"--max-session-timeout", "20000")
	conf := p.word(t, "conf")
	for _, want := range []string{"dataDir=" + dir + "/data\n", "tickTime=1500\n", "maxClientCnxns=7\n",
		"minSessionTimeout=3000\n", "maxSessionTimeout=20000\n"} {
		expect.Has(t, conf, want, "conf lacks %q", want)
	}
	expect.Has(t, p.word(t, "mntr"), "not in the whitelist", "mntr answers")
	for _, key := range []string{"initLimit", "syncLimit", "super.secret"} {
		if n := strings.Count(p.stderr.String(), "key="+key+"\n"); n != 1 {
			t.Errorf("%d lines about %s in\n%s", n, key, p.stderr)
		}
	}
	_, body := p.get(t, "/commands/initial_configuration")
	expect.Has(t, body, "tickTime=1500", "the file is shown as: body")
	expect.Lacks(t, body, "hunter2")
	expect.Lacks(t, p.stderr.String(), "hunter2")
}

// The command lines of docs/lock-view.md work as written, in an empty directory. The test replaces only
// ports, and the example's node and token.
func TestTheLockViewsPageIsFollowed(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the page's lines need curl")
	}
	page := must.Get(os.ReadFile("../../../docs/lock-view.md"))(t)
	// A block is a run of indented lines.
	blocks := regexp.MustCompile(`(?m)(^    .*\n)+`).FindAllString(string(page), -1)
	must.Equal(t, len(blocks), 2,
		"%d blocks; this test knows how to start and look, and how to break a lock: number of blocks", len(blocks))
	must.That(t, strings.HasPrefix(blocks[0], "    zlockd --dev &\n"),
		"%d blocks; this test knows how to start and look, and how to break a lock: %q", len(blocks), blocks)
	p := launch(t, "--dev", "--client-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--super-digest",
		"super:lK75jTNcA+U9vtVEw5vB51mj/w4=")
	sh := func(script string) string {
		t.Helper()
		cmd := exec.Command("bash", "-ec", strings.ReplaceAll(script, "127.0.0.1:8181", p.ready["admin"]))
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s%v\n%s", script, err, out)
		}
		return string(out)
	}

	c := must.Get(wire.Open(p.ready["client"]))(t)
	defer c.Close()
	for _, dir := range []string{"/app", "/app/orders"} {
		must.Get(c.Create(dir, nil, 0))(t)
	}
	node := must.Get(c.Create("/app/orders/lock-", nil, jute.FlagEphemeralSequential))(t)
	st := must.Get(c.Exists(node, false))(t)

	_, look, _ := strings.Cut(blocks[0], "# or\n")
	if out := sh(look); !strings.Contains(out, `"v": 1`) && !strings.Contains(out, `"v":1`) ||
		!strings.Contains(out, "/app/orders") {
		t.Errorf("%s answers %s", look, out)
	}
	out := sh(strings.NewReplacer("lock-0000000003", strings.TrimPrefix(node, "/app/orders/"), `"1234"`,
		fmt.Sprintf("%q", fmt.Sprint(st.Czxid))).Replace(blocks[1]))
	expect.Lacks(t, out, `"error"`)
	expect.Has(t, out, fmt.Sprintf("0x%x", c.Session.ID), "standard output")
	expect.OK(t, expect.Err(c.Exists(node, false)), "a dry run broke the lock")
}

// The audit log has the start, a client's change and the stop. At SIGHUP the server opens the file again. The
// server's log reports a slow request.
func TestAuditLogOfAServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	p := launch(t, "--dev", "--client-addr", "127.0.0.1:0", "--admin-addr", "off", "--audit-log", file,
		"--slow-request", "1ns")
	c := must.Get(wire.Open(p.ready["client"]))(t)
	defer c.Close()
	must.Get(c.Create("/a", nil, 0))(t)
	reads := func(file, words string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			text, _ := os.ReadFile(file)
			if strings.Contains(string(text), words) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%q is not in %q", words, text)
			}
		}
	}
	reads(file, "\toperation=serverStart\tresult=success\n")
	reads(file, "\tip=127.0.0.1\toperation=create\tznode=/a\tznode_type=persistent\tresult=success\n")
	must.OK(t, os.Rename(file, file+".1"))
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.stderr.Await(t, "SIGHUP: the configuration was read again")
	reads(file, "")
	if code := p.stop(t); code != exitOK {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
	expect.Has(t, p.stderr.String(), `msg="slow request" operation=create path=/a session=0x`,
		"no slow request in")
	reads(file, "\toperation=serverStop\tresult=invoked\n")
}
