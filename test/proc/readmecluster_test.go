package proc

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The three machines of the README: its certificates, made by its commands, and its command line.
// Only addresses and directories are those of this test.
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

// The page about upgrades is followed on one server; only directories and ports are those of this
// test, and the lines for a package manager and a service manager are left to make deb-test.
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

// config returns a zoo.cfg for a server.
func config(t *testing.T, s *cluster.Server) string {
	host, port, err := net.SplitHostPort(s.Client)
	must.OK(t, err)
	_, admin, err := net.SplitHostPort(s.Admin)
	must.OK(t, err)
	return "dataDir=" + s.Data() + "\nclientPort=" + port + "\nclientPortAddress=" + host +
		"\nadmin.serverAddress=" + host + "\nadmin.serverPort=" + admin +
		"\nDigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n"
}
