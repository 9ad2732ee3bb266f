package proc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// watcher is a client with a session, an ephemeral node and watches. When its connection ends, it attaches
// again and sets its watches, as a client library does.
type watcher struct {
	t      *testing.T
	at     *cluster.Server
	c      *wire.Conn
	events []wire.Event
	again  int // how often the client attached again
}

// watcherTimeout is the watcher's session timeout. pour() takes less time, even on a busy machine.
const watcherTimeout = 3 * time.Minute

func newWatcher(t *testing.T, s *cluster.Server) *watcher {
	t.Helper()
	nc := must.Get(s.Dial(10 * time.Second))(t)
	w := &watcher{t: t, at: s, c: wire.New(nc)}
	t.Cleanup(func() { w.c.Close() })
	must.OK(t, w.c.Connect(wire.NewSession(int32(watcherTimeout.Milliseconds()))))
	must.Get(w.c.Create("/watcher", nil, jute.FlagEphemeral))(t)
	_, _, err := w.c.GetData("/data", true)
	must.OK(t, err)
	must.Is(t, expect.Err(w.c.Exists("/born", true)), jute.NoNode)
	_, _, err = w.c.Children("/children", true)
	must.OK(t, err)
	if err := w.c.AddWatch("/tree", 1); err != nil { // persistent, recursive
		t.Fatal(err)
	}
	return w
}

// attach() attaches again to the same server and sets the watches that have not fired.
func (w *watcher) attach() {
	w.t.Helper()
	zxid, session := w.c.Zxid, w.c.Session
	w.c.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal("not attached again within a minute")
		}
		nc, err := w.at.Dial(time.Second)
		if err != nil {
			continue
		}
		w.c = wire.New(nc)
		err = w.c.Connect(wire.Attach(session, zxid))
		must.That(w.t, !errors.Is(err, wire.ErrRefused), "the session has ended")
		if err == nil {
			break
		}
		nc.Close()
	}
	w.again++
	w.c.Zxid = zxid
	one := func(path string) []string {
		for _, e := range w.events {
			if e.Path == path {
				return nil
			}
		}
		return []string{path}
	}
	// The server reports missed changes as events before its answer.
	must.OK(w.t, w.c.SetWatches2(zxid, one("/data"), one("/born"), one("/children"), nil, []string{
		"/tree"}))
	w.take()
}

func (w *watcher) take() {
	w.events = append(w.events, w.c.Events...)
	w.c.Events = nil
}

// heard() says whether an event came for a path.
func (w *watcher) heard(path string) bool {
	for _, e := range w.events {
		if e.Path == path {
			return true
		}
	}
	return false
}

// await() pings until an event came for each path, attaching again when the connection ends.
func (w *watcher) await(paths ...string) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); len(paths) > 0; {
		if w.heard(paths[0]) {
			paths = paths[1:]
			continue
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("no event for %s came; there were %v", paths[0], w.events)
		}
		w.listen()
		time.Sleep(10 * time.Millisecond)
	}
}

// listen() takes the events that have arrived, and attaches again if the connection ended.
func (w *watcher) listen() {
	err := w.c.Ping()
	w.take()
	if err != nil {
		w.attach()
	}
}

// pour() writes through a server, one request after another, until the log has grown by `entries` entries.
// Each request makes one entry.
func pour(t *testing.T, s *cluster.Server, entries int64) {
	t.Helper()
	c := open(t, s)
	defer c.CloseSession()
	for from := s.Metric("zlockd_raft_last_index"); s.Metric("zlockd_raft_last_index") < from+entries; {
		for range 500 {
			must.Get(c.SetData("/poured", []byte("x"), -1))(t)
		}
	}
}

// TestG17SnapshotInstall stops or kills a follower while others write, until the log entries that it needs
// are gone. The leader sends it a snapshot. The sessions of its clients live on, and their watches miss no
// change.
func TestG17SnapshotInstall(t *testing.T) {
	for _, how := range []string{"stopped", "killed"} {
		t.Run(how, func(t *testing.T) {
			c := cluster.Three(t, "--snapshot-entries", "1000", "--log-level", "debug", "--max-session-timeout",
				watcherTimeout.String())
			lead := c.WaitLeader()
			lagging := c.Others(lead)[0]
			writer := open(t, lead)
			for _, path := range []string{"/data", "/children", "/tree", "/poured"} {
				must.Get(writer.Create(path, nil, jute.FlagPersistent))(t)
			}
			Fill(t, lead, 5000)
			load := StartWriters(t, c, 1, watcherTimeout)
			sync := open(t, lagging)
			must.That(t, sync.Sync("/") == nil, "no sync")
			w := newWatcher(t, lagging)
			before := strings.Count(lagging.Log(1<<30), installed)

			if how == "stopped" {
				lagging.Signal(syscall.SIGSTOP)
			} else {
				lagging.Kill()
			}
			write := func(what string, err error) {
				must.OK(t, err, "%s", what)
			}
			_, err := writer.SetData("/data", []byte("1"), -1)
			write("set", err)
			for _, path := range []string{"/born", "/children/a", "/tree/missed"} {
				_, err = writer.Create(path, nil, jute.FlagPersistent)
				write("create", err)
			}
			began := time.Now()
			pour(t, lead, 13_000) // more entries than the log keeps after a snapshot, which may come late
			t.Logf("13,000 entries written in %v", time.Since(began).Round(time.Millisecond))
			if how == "stopped" {
				lagging.Signal(syscall.SIGCONT)
			} else {
				lagging.Start()
			}
			began = time.Now()
			w.await("/data", "/born", "/children")
			writer = open(t, lead) // the session of the first writer may have expired, so open another one
			t.Logf("all events came %v later; attached again %d times", time.Since(began).Round(time.Millisecond),
				w.again)
			lagging.WaitServing(time.Minute)
			expect.That(t, strings.Count(lagging.Log(1<<30), installed) != before,
				"no snapshot was installed: the test shows nothing")
			// A recursive watch misses changes while its client has no connection. The client may lose its
			// connection once more, so wait until the watch reports a change again.
			for n, end := 0, time.Now().Add(time.Minute); !w.heard(fmt.Sprintf("/tree/later%d", n)); n++ {
				if time.Now().After(end) {
					t.Fatalf("no event came for any of %d nodes; there were %v", n, w.events)
				}
				_, err = writer.Create(fmt.Sprintf("/tree/later%d", n+1), nil, jute.FlagPersistent)
				write("create", err)
				time.Sleep(200 * time.Millisecond)
				w.listen()
			}
			for _, s := range c.Servers {
				nc := open(t, s)
				must.OK(t, nc.Sync("/"))
				st, err := nc.Exists("/watcher", false)
				if expect.OK(t, err, "server %d", s.ID) {
					expect.Equal(t, st.EphemeralOwner, w.c.Session.ID, "server %d: ephemeral owner", s.ID)
				}
			}
			load.Check(c)
			c.SameState()
			_, expired := load.disturbances(c.Servers)
			expect.That(t, expired <= 0, "%d sessions were lost", expired)
		})
	}
}

// installed is a part of the line that raft logs when it has installed a snapshot from the leader.
const installed = "nstalled remote snapshot"

// A cluster starts on three machines as the README says. The test uses the README's commands for certificates
// and servers, and changes only addresses and directories.
func TestTheClusterOfTheReadmeStarts(t *testing.T) {
	t.Parallel()
	steps := blocks(t, "../../README.md", "Run")
	find := func(begin string) string {
		i := slices.IndexFunc(steps, func(s string) bool { return strings.HasPrefix(s, begin) })
		must.That(t, i >= 0, "README.md has no step that begins with %q", begin)
		return steps[i]
	}
	dir := t.TempDir()
	ca := exec.Command("sh", "-e", "-c", find("zlock ca init"))
	ca.Dir, ca.Env = dir, append(os.Environ(), "PATH="+filepath.Dir(cluster.Zlock(t))+":"+os.Getenv("PATH"))
	if out, err := ca.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	line := strings.ReplaceAll(find("zlockd --id 1"), "\\\n", " ")
	command := strings.Fields(strings.NewReplacer("zlockd --id 1", must.Get(cluster.Binary())(t)+" --id {id}",
		"1=a:2888,2=b:2888,3=c:2888", "{peers}", "a:2181", "{client}", "/var/lib/zlockd", "{dir}/data",
		"peer1.", dir+"/peer{id}.", "ca.pem", dir+"/ca.pem").Replace(line))
	c := cluster.Run(t, cluster.Options{Nodes: 3, Command: append(command, "--admin-addr", "{admin}")})
	w := must.Get(c.Servers[0].Open())(t)
	defer w.Close()
	must.Get(w.Create("/a", nil, 0))(t)
}

// The test follows the page about upgrades on one server. It changes only directories and ports; make
// deb-test runs the lines for a package manager and a service manager.
func TestTheManualOfUpgradesCanBeFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := must.Get(cluster.Prepare(cluster.Options{Dir: dir}))(t)
	s := c.Servers[0]
	must.OK(t, os.WriteFile(filepath.Join(dir, "zlockd.cfg"), []byte(config(t, s)), 0o600))
	must.OK(t, os.WriteFile(filepath.Join(dir, "admin.auth"), []byte("digest:super:test\n"), 0o600))
	s.Args = []string{must.Get(cluster.Binary())(t), "--config", filepath.Join(dir, "zlockd.cfg")}
	t.Cleanup(c.Close)
	must.OK(t, c.StartAll())
	bin := filepath.Dir(cluster.Zlock(t))
	followed := 0
	for _, step := range append(blocks(t, "../../docs/upgrading.md", "One server after the other"),
		blocks(t, "../../docs/upgrading.md", "If a new release misbehaves")...) {
		for line := range strings.Lines(step) {
			if strings.HasPrefix(line, "apt ") || strings.HasPrefix(line, "systemctl ") {
				continue
			}
			followed++
			line = strings.NewReplacer("/etc/zlockd/", dir+"/", "/var/lib/zlockd-old", dir+"/old").Replace(line)
			cmd := exec.Command("sh", "-e", "-c", line)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "ZLOCK_ADMIN="+s.Admin, "PATH="+bin+":"+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", line, err, out)
			}
		}
	}
	expect.Equal(t, followed, 4, "%d commands", followed)
}

// config() returns a zoo.cfg for a server.
func config(t *testing.T, s *cluster.Server) string {
	host, port := must.Get2(net.SplitHostPort(s.Client))(t)
	_, admin := must.Get2(net.SplitHostPort(s.Admin))(t)
	return "dataDir=" + s.Data() + "\nclientPort=" + port + "\nclientPortAddress=" + host +
		"\nadmin.serverAddress=" + host + "\nadmin.serverPort=" + admin +
		"\nDigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n"
}
