package proc

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// smallDisk mounts a file system in memory, of so many KiB.
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

// grow gives a small disk more room.
func grow(t *testing.T, dir, kib string) {
	t.Helper()
	must.OK(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size="+kib+"k"))
}

// TestDiskThatFillsHalfWay: each command that writes data says which file did
// not fit, leaves nothing half made, and does its work once there is room.
func TestDiskThatFillsHalfWay(t *testing.T) {
	bin, dir := cluster.Build(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func(args ...string) (string, error) {
		out, err := exec.Command(bin, args...).CombinedOutput()
		return string(out), err
	}
	// fills runs a command that finds no room, then again when there is some.
	fills := func(disk string, args ...string) {
		t.Helper()
		before := files(t, disk)
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		text := string(out)
		t.Logf("%s: %s", args[1], text)
		if err == nil || !strings.Contains(text, "no space left on device") || !strings.Contains(text, disk) ||
			!strings.Contains(strings.ToLower(text), "make room") {
			t.Errorf("%s: %v %s", args[1], err, text)
		}
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

	// What recovers writes beside what is there.
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

// files lists what is on a disk.
func files(t *testing.T, dir string) string {
	t.Helper()
	var list []string
	must.OK(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		list = append(list, strings.TrimPrefix(path, dir))
		return err
	}))
	return strings.Join(list, " ")
}
