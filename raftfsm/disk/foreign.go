package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// marks are names that only the data of other servers have: of etcd, Consul, Kafka, PostgreSQL, MySQL, Redis
// and ClickHouse.
var marks = []string{"member", "serf", "meta.properties", "PG_VERSION", "ibdata1", "*.rdb", "appendonly*",
	"coordination"}

// RefuseForeign returns an error if the directory is not a data directory yet and holds what could be
// another server's data: its user named it by mistake. Any other file or folder may stand there,
// such as the logs of a program that a ZooKeeper ran under.
func RefuseForeign(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	for _, e := range entries {
		if isPart(e.Name()) {
			return nil // what is missing is told later
		}
	}
	for _, e := range entries {
		if what := foreign(path, e.Name()); what != "" {
			return fmt.Errorf("data directory %s holds %s, and no data of a zlockd: choose an empty or a new "+
				"--data-dir", path, what)
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

// foreign describes the data of another server that an entry of a directory could be; empty: it is not such
// data.
func foreign(dir, name string) string {
	if isMark(name) {
		return fmt.Sprintf("%s, as the data of another program", name)
	}
	inside, err := os.ReadDir(filepath.Join(dir, name))
	switch {
	case os.IsPermission(err) && name != "lost+found": // which a file system makes
		return fmt.Sprintf("%s, which this user may not read, and which could be another server's data", name)
	case err != nil: // a file
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
