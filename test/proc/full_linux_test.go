package proc

import (
	"bytes"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// smallDisk mounts a file system in memory, with a size in KiB.
func smallDisk(t *testing.T, kib string) (dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+kib+"k"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		expect.OK(t, syscall.Unmount(dir, 0), "unmount %s", dir)
	})
	return dir
}

// grow() gives a small disk more room.
func grow(t *testing.T, dir, kib string) {
	t.Helper()
	must.OK(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size="+kib+"k"))
}

// TestDiskThatFillsHalfWay: each command that writes data says which file did not fit, leaves no partial
// file, and succeeds once there is room.
func TestDiskThatFillsHalfWay(t *testing.T) {
	bin, dir := cluster.Build(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func(args ...string) (string, error) {
		out, err := exec.Command(bin, args...).CombinedOutput()
		return string(out), err
	}
	// fills() runs a command on a full disk, then again when there is room.
	fills := func(disk string, args ...string) {
		t.Helper()
		before := files(t, disk)
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		text := string(out)
		t.Logf("%s: %s", args[1], text)
		expect.Fails(t, err, "%s", args[1])
		expect.Has(t, text, "no space left on device", "%s: text", args[1])
		expect.Has(t, text, disk, "%s: text", args[1])
		expect.Has(t, strings.ToLower(text), "make room", "%s: text", args[1])
		if now := files(t, disk); now != before {
			t.Errorf("%s left %s, before %s", args[1], now, before)
		}
	}
	const nodes = 30_000
	fill(t, at("zoo"), nodes)

	disk := smallDisk(t, "1000")
	ours := filepath.Join(disk, "ours")
	fills(disk, bin, "import", "--from", at("zoo"), "--data-dir", ours)
	grow(t, disk, "100000")
	out, err := run("import", "--from", at("zoo"), "--data-dir", ours)
	output(t, out, err)

	target := smallDisk(t, "1000")
	zoo := filepath.Join(target, "zoo")
	fills(target, bin, "export", "--data-dir", ours, "--to", zoo)
	grow(t, target, "100000")
	out, err = run("export", "--data-dir", ours, "--to", zoo)
	output(t, out, err)
	out, err = run("verify", ours, zoo)
	output(t, out, err)

	r := serve(t, bin, ours)
	zlock := cluster.Zlock(t)
	auth := at("auth")
	must.OK(t, os.WriteFile(auth, []byte("digest:"+super+"\n"), 0o600))
	small := smallDisk(t, "1000")
	for _, command := range []string{"backup", "export"} {
		file := filepath.Join(small, command)
		fills(small, zlock, command, "--admin-addr", r.admin, "--auth-file", auth, file)
	}
	file := at("backup")
	r.backup(t, file)
	r.stop()
	fills(small, bin, "restore", file, "--data-dir", filepath.Join(small, "restored"))
	grow(t, small, "100000")
	out, err = run("restore", file, "--data-dir", filepath.Join(small, "restored"))
	output(t, out, err)

	// Leave too little room: a recovering server writes new files next to the existing ones.
	ballast := filepath.Join(disk, "ballast")
	var fs syscall.Statfs_t
	must.OK(t, syscall.Statfs(disk, &fs))
	must.OK(t, os.WriteFile(ballast, make([]byte, int(fs.Bavail)*int(fs.Bsize)-1000<<10), 0o600))
	fills(disk, bin, "recover", "--data-dir", ours, "--yes")
	out, err = run("verify", ours, zoo)
	output(t, out, err)
	must.OK(t, os.Remove(ballast))
	out, err = run("recover", "--data-dir", ours, "--yes")
	output(t, out, err)
	out, err = run("verify", ours, zoo)
	output(t, out, err)
}

// files() lists what is on a disk.
func files(t *testing.T, dir string) string {
	t.Helper()
	var list []string
	must.OK(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		list = append(list, strings.TrimPrefix(path, dir))
		return err
	}))
	return strings.Join(list, " ")
}

// pipedLog is the stderr of a server: a pipe whose reader is this test.
type pipedLog struct {
	path   string
	reader *os.File
}

// pipeLogs has every server write its log to a small pipe.
func pipeLogs(t *testing.T, c *cluster.Ensemble) map[*cluster.Server]*pipedLog {
	logs := map[*cluster.Server]*pipedLog{}
	for _, s := range c.Servers {
		logs[s] = pipeLog(t, s)
	}
	return logs
}

func pipeLog(t *testing.T, s *cluster.Server) *pipedLog {
	p := &pipedLog{path: filepath.Join(t.TempDir(), "stderr")}
	must.OK(t, unix.Mkfifo(p.path, 0o600))
	fd, err := unix.Open(p.path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, 4096)
	}
	must.OK(t, err)
	p.reader = os.NewFile(uintptr(fd), p.path)
	t.Cleanup(func() { p.reader.Close() })
	s.Args = append(slices.Clone(toPipe), append([]string{p.path}, s.Args...)...)
	return p
}

// toPipe is the beginning of a command line. The path of a log and a command follow; the command's stderr
// goes to that path.
var toPipe = []string{"/bin/sh", "-c", `log=$1; shift; exec "$@" 2>"$log"`, "sh"}

// fill() leaves no room in the pipe for another byte.
func (p *pipedLog) fill(t *testing.T) {
	t.Helper()
	fd := must.Get(unix.Open(p.path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	for size := 1024; size > 0; {
		switch _, err := unix.Write(fd, bytes.Repeat([]byte("x"), size)); {
		case errors.Is(err, unix.EAGAIN):
			size /= 2
		case err != nil:
			t.Fatal(err)
		}
	}
}

// longestGap returns the longest time without an answer to any write, within the `span` that begins at `at`.
// It ignores the clients of the server `except`.
func (w *Writers) longestGap(at time.Time, span time.Duration, except *cluster.Server) (
	longest time.Duration) {
	w.t.Helper()
	for from := at; from.Before(at.Add(span)); {
		gap := w.awaitWrite(from, except, 30*time.Second)
		longest = max(longest, gap)
		from = from.Add(max(gap, 20*time.Millisecond))
	}
	return longest
}

// TestR9StderrThatNobodyReads kills a follower, which makes the leader log much, while the leader's log pipe
// is full and has no reader. Writes continue. They also continue while servers with full pipes elect a new
// leader, and when the readers exit.
func TestR9StderrThatNobodyReads(t *testing.T) {
	const most = 5 * time.Second // it was 90 s while logging could stop raft's main loop; the goal is 2.5 s
	c := cluster.LayOut(t, cluster.Options{Nodes: 3})
	logs := pipeLogs(t, c)
	c.StartAll()
	w := StartWriters(t, c, 2, 30*time.Second)
	for _, step := range []struct {
		name string
		harm func(*cluster.Server) // harms the log of each server
		lead bool                  // the leader is killed; false: a follower is killed
	}{
		{"full, a follower killed", func(s *cluster.Server) { logs[s].fill(t) }, false},
		{"full, the leader killed", func(s *cluster.Server) { logs[s].fill(t) }, true},
		{"readers gone, a follower killed", func(s *cluster.Server) { logs[s].reader.Close() }, false},
		{"readers gone, the leader killed", func(*cluster.Server) {}, true},
	} {
		// Try several times: a server that waits for its log is slow each time, a busy machine only
		// sometimes.
		best := time.Duration(math.MaxInt64)
		for try := 0; try < 5 && best > most; try++ {
			lead := c.WaitLeader()
			victim := lead
			if !step.lead {
				victim = c.Others(lead)[0]
			}
			for _, s := range c.Servers {
				step.harm(s)
			}
			w.awaitWrite(time.Now(), nil, 30*time.Second)
			at := time.Now()
			victim.Kill()
			gap := w.longestGap(at, 5*time.Second, victim)
			best = min(best, gap)
			t.Logf("%s: longest time without a write %v", step.name, gap.Round(time.Millisecond))
			for _, s := range c.Others(victim) {
				select {
				case <-s.Exited():
					t.Fatalf("%s: server %d ended", step.name, s.ID)
				default:
				}
			}
			// The killed server starts again with its own log.
			victim.Args = victim.Args[len(toPipe)+1:]
			logs[victim] = pipeLog(t, victim)
			victim.Start()
			victim.WaitServing(time.Minute)
		}
		expect.That(t, best <= most, "%s: no write for %v", step.name, best)
	}
	w.Check(c)
}
