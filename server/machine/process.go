package machine

import (
	"cmp"
	"os"
	"os/user"
	"runtime"
	"strconv"

	"github.com/zlockd/zlockd/server/report"
)

// Environment returns what `envi` shows. ZooKeeper's keys come first, in its order; those about Java have no
// value. Keys about Go follow. No environment variable and no argument of the process is in the list.
func Environment() []report.Pair {
	const none = "<NA>"
	host, err := os.Hostname()
	if err != nil {
		host = none
	}
	name, home := none, none
	if u, err := user.Current(); err == nil {
		name, home = u.Username, u.HomeDir
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = none
	}
	free, limit, total := memory()
	var list []report.Pair
	for _, p := range [][2]string{
		{"host.name", host},
		{"java.version", none},
		{"java.vendor", none},
		{"java.home", none},
		{"java.class.path", none},
		{"java.library.path", none},
		{"java.io.tmpdir", os.TempDir()},
		{"java.compiler", none},
		{"os.name", osName()},
		{"os.arch", runtime.GOARCH},
		{"os.version", osVersion()},
		{"user.name", name},
		{"user.home", home},
		{"user.dir", dir},
		{"os.memory.free", megabytes(free)},
		{"os.memory.max", megabytes(limit)},
		{"os.memory.total", megabytes(total)},
		{"go.version", runtime.Version()},
		{"go.maxprocs", strconv.Itoa(runtime.GOMAXPROCS(0))},
	} {
		list = append(list, report.Pair{Key: p[0], Value: p[1]})
	}
	return list
}

func megabytes(n uint64) string { return strconv.FormatUint(n>>20, 10) + "MB" }

// osName returns Java's name of the operating system.
func osName() string {
	names := map[string]string{"linux": "Linux", "darwin": "Mac OS X"}
	return cmp.Or(names[runtime.GOOS], runtime.GOOS)
}

// OpenFiles returns how many file descriptors this process has open, and how many it may have. A number is -1
// where the system does not report it.
func OpenFiles() (open, limit int64) {
	open = -1
	if list, err := os.ReadDir("/proc/self/fd"); err == nil {
		open = int64(len(list) - 1) // do not count the descriptor that ReadDir opened
	}
	return open, MaxOpenFiles()
}
