//go:build stock

package stock

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

const saslUsers = `Server {
	org.apache.zookeeper.server.auth.DigestLoginModule required
	user_root="top secret"
	user_jaasuser="jaas_password";
};
`

const saslClient = `Client {
	org.apache.zookeeper.server.auth.DigestLoginModule required
	username="root" password="top secret";
};
`

// TestSASL lets kazoo and the Java client authenticate by SASL DIGEST-MD5, with
// users of a JAAS file, and fail to.
func TestSASL(t *testing.T) {
	need(t, "/usr/bin/python3", "/usr/lib/python3/dist-packages/kazoo/client.py",
		"/usr/share/zookeeper/bin/zkCli.sh")
	dir := t.TempDir()
	write := func(name, text string) (file string) {
		file = filepath.Join(dir, name)
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	users, client := write("server.jaas", saslUsers), write("client.jaas", saslClient)
	e := cluster.Run(t, cluster.Options{Kind: cluster.Zlockd, Dev: true, Flags: []string{"--sasl-users", users,
		"--sasl-super", "root"}})
	run := func(cmd *exec.Cmd) string {
		timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
		defer timer.Stop()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
		return string(out)
	}
	run(exec.Command("/usr/bin/python3", "-B", "-W", "ignore", "testdata/kazoo/sasl.py", e.Addrs()))

	cli := exec.Command("/usr/share/zookeeper/bin/zkCli.sh", "-server", e.Addrs(), "whoami")
	cli.Env = append(os.Environ(), "CLIENT_JVMFLAGS=-Djava.security.auth.login.config="+client)
	out := run(cli)
	for _, want := range []string{"SaslAuthenticated", "sasl: root", "super: "} {
		expect.Has(t, out, want, "the Java client does not see %q", want)
	}
}
