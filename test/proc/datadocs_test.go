package proc

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
)

// TestDocumentIsFollowed runs the shell parts of docs/data.md, one after another,
// in an empty directory with a ZooKeeper's data.
func TestDocumentIsFollowed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers as processes")
	}
	text, err := os.ReadFile("../../docs/data.md")
	must.OK(t, err)
	var script strings.Builder
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		script.WriteString(m[1])
	}
	dir, bin := t.TempDir(), t.TempDir()
	fill(t, filepath.Join(dir, "zookeeper"), 2000)
	zlock := cluster.Zlock(t)
	for name, path := range map[string]string{"zlockd": cluster.Build(t), "zlock": zlock} {
		must.OK(t, os.Symlink(path, filepath.Join(bin, name)))
	}
	client, admin := freeAddr(t), freeAddr(t)
	cmd := exec.CommandContext(t.Context(), "bash", "-exc", "set -m\n"+script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "ZLOCKD_CLIENT_ADDR="+client,
		"ZLOCKD_ADMIN_ADDR="+admin, "ZLOCK_ADMIN="+admin)
	out, err := cmd.CombinedOutput()
	output(t, string(out), err)
	if n := strings.Count(string(out), "equal: "); n != 5 {
		t.Errorf("%d comparisons of 5:\n%s", n, out)
	}
	if !strings.Contains(string(out), fmt.Sprintf("snapshot.%x", 2000)) {
		t.Errorf("no snapshot was exported:\n%s", out)
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().String()
}
