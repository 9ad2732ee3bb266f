package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server refuses a directory that may hold another server's data, and writes nothing there. A new data
// directory may contain other files.
func TestForeignDirectoriesAreRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		files   []string // a folder ends in a slash
		foreign bool
	}{
		{"empty", nil, false},
		{"what a ZooKeeper and a user put there", []string{"lost+found/", "myid", "version-2/log.1", ".hidden",
			"zookeeper_server.pid", "server.log", "lock", "identity.tmp"}, false},
		{"logs that Vitess keeps there", []string{"logs/zksrv.INFO", "logs/old/zksrv.ERROR", "myid"}, false},
		{"files of a person", []string{"photo.jpg", "thesis/raft.tex"}, false},
		{"a file with a folder's name", []string{"s1"}, false},
		{"server of this program", []string{"logs/", "s1/identity", "s1/raft/"}, true},
		{"server of this program without its identity", []string{"s1/snapshots/"}, true},
		{"ZooKeeper", []string{"zookeeper/version-2/"}, true},
		{"etcd", []string{"member/"}, true},
		{"parent of an etcd", []string{"etcd/member/"}, true},
		{"PostgreSQL", []string{"PG_VERSION", "base/"}, true},
		{"Redis", []string{"dump.rdb"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range c.files {
				must.OK(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(f)), 0o700))
				if strings.HasSuffix(f, "/") {
					must.OK(t, os.MkdirAll(filepath.Join(dir, f), 0o700))
				} else {
					must.OK(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
				}
			}
			before := must.Get(os.ReadDir(dir))(t)
			d, err := openDataDir(dir, osFiles)
			if !c.foreign {
				must.OK(t, err)
				d.close()
				return
			}
			must.That(t, err != nil, "the directory is taken")
			expect.Has(t, err.Error(), "--data-dir", "the error")
			expect.Has(t, err.Error(), dir, "the error")
			expect.Equal(t, len(must.Get(os.ReadDir(dir))(t)), len(before), "entries of the directory are")
		})
	}
}

// A directory with a server's data is accepted whatever other files are in it.
func TestDataDirectoriesHaveRoomForOthers(t *testing.T) {
	dir := t.TempDir()
	d := must.Get(open(dir))(t)
	must.OK(t, d.Close())
	must.OK(t, os.MkdirAll(filepath.Join(dir, "s2", "raft"), 0o700))
	d, err := open(dir)
	must.OK(t, err)
	must.OK(t, d.Close())
}
