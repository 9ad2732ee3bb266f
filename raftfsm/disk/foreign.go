package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// `marks` are names of files that only occur in the data of etcd, Consul, Kafka, PostgreSQL, MySQL, Redis and
// ClickHouse.
var marks = []string{"member", "serf", "meta.properties", "PG_VERSION", "ibdata1", "*.rdb", "appendonly*",
	"coordination"}

// RefuseForeign returns an error if the directory is not a data directory yet, and has files that could be
// the data of another kind of server: the user has probably named it by mistake. Other files and directories
// are allowed, for example the logs of a ZooKeeper's supervisor.
func RefuseForeign(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	for _, e := range entries {
		if isPart(e.Name()) {
			return nil // it is a data directory; whether a part is missing is checked later
		}
	}
	for _, e := range entries {
		if what := foreign(path, e.Name()); what != "" {
			return fmt.Errorf("data directory %s holds %s, not the data of a zlockd: choose an empty or a "+
				"new --data-dir", path, what)
		}
	}
	return nil
}

func isPart(name string) bool { return slices.Contains(parts, name) || name == replacingDir }

func isMark(name string) bool {
	return slices.ContainsFunc(marks, func(pattern string) bool {
		match, _ := filepath.Match(pattern, name)
		return match
	})
}

// foreign() describes an entry of a directory if it could be the data of another kind of server, and
// otherwise returns "".
func foreign(dir, name string) string {
	if isMark(name) {
		return fmt.Sprintf("%s, like the data of another program", name)
	}
	inside, err := os.ReadDir(filepath.Join(dir, name))
	switch {
	case os.IsPermission(err) && name != "lost+found": // file systems create lost+found
		return fmt.Sprintf("%s, which this user may not read, and which could be another server's data", name)
	case err != nil: // the entry is a file, not a directory
		return ""
	}
	for _, e := range inside {
		switch {
		case isPart(e.Name()) || e.Name() == "version-2":
			return fmt.Sprintf("%s with the data of another server", name)
		case isMark(e.Name()):
			return fmt.Sprintf("%s with the data of another program (%s)", name, e.Name())
		}
	}
	return ""
}
