//go:build stock

package stock

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

const kerberosServer = `Server {
	com.sun.security.auth.module.Krb5LoginModule required
	useKeyTab=true keyTab="%s" storeKey=true useTicketCache=false principal="zookeeper/localhost@ZK.TEST";
};
`

const kerberosClient = `Client {
	com.sun.security.auth.module.Krb5LoginModule required
	useKeyTab=true keyTab="%s" storeKey=true useTicketCache=false principal="%s@ZK.TEST";
};
`

// kerberosRules are the settings with which TestKerberos repeats all its checks. They change the name of
// every identity.
var kerberosRules = []string{
	"kerberos.removeHostFromPrincipal=true", "kerberos.removeRealmFromPrincipal=true",
	"security.auth_to_local=RULE:[2:$1-of-$2](app-.*)s/o/0/ DEFAULT",
	"sessionRequireClientSASLAuth=true",
}

// TestKerberos lets kazoo, the Java client and the C client sign in with tickets of a KDC. They sign in at a
// ZooKeeper and at zlockd with the same JAAS file, and must get the same answers and the same refusals. At
// the end the test replaces the server's key.
func TestKerberos(t *testing.T) {
	zlockd := kerberosServers(t)
	need(t, "java", "gcc", "apt-get", "/usr/bin/python3", "/usr/share/zookeeper/bin/zkCli.sh",
		"/usr/share/java/zookeeper.jar",
		"/usr/lib/python3/dist-packages/puresasl/__init__.py", "/usr/lib/x86_64-linux-gnu/sasl2/libgssapiv2.so",
		"/usr/include/sasl/sasl.h")
	cli := kerberosCli(t)
	for name, config := range map[string][]string{"as they are": nil, "by rules": kerberosRules} {
		t.Run(name, func(t *testing.T) {
			seen := map[cluster.Kind]string{}
			for _, kind := range []cluster.Kind{cluster.ZooKeeper, cluster.Zlockd} {
				seen[kind] = kerberosSeen(t, kind, zlockd, config, cli)
			}
			if a, b := seen[cluster.ZooKeeper], seen[cluster.Zlockd]; a != b {
				t.Errorf("ZooKeeper:\n%s\nzlockd:\n%s", a, b)
			}
			who := []string{"alice@ZK.TEST", "app/host@ZK.TEST"}
			if config != nil {
				who = []string{"alice", "app-0f-host"}
			}
			want := []string{"c /alice: rc = 0", "c /alice-foreign: rc = -102", "c /app-host: rc = 0", "a replay [-",
				`identity ["Id(scheme='sasl', id='` + who[0] + `')"]`}
			for _, w := range who {
				want = append(want, "java sasl: "+w+"\n", "id='"+w+"')")
			}
			for _, w := range want {
				expect.Has(t, seen[cluster.Zlockd], w, "is not there")
			}
		})
	}
}

// kerberosCli builds the C client's shell with SASL.
func kerberosCli(t *testing.T) string {
	t.Helper()
	cache := must.Get(os.UserCacheDir())(t)
	source, dir := filepath.Join(cache, "zlockd-stock"), t.TempDir()
	must.OK(t, os.MkdirAll(source, 0o755))
	for _, words := range [][]string{{"source.sh", source},
		{"build-cli.sh", filepath.Join(source, "zookeeper")}} {
		script := must.Get(filepath.Abs(filepath.Join("testdata/suites", words[0])))(t)
		cmd := exec.Command("sh", script, words[1])
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	return filepath.Join(dir, "cli")
}

// kerberosSeen lists what the clients see of a server, one fact in each line.
func kerberosSeen(t *testing.T, kind cluster.Kind, zlockd string, config []string, cli string) string {
	k := startKDC(t, "ZK.TEST", "zookeeper/localhost", "other/localhost", "alice", "app/host")
	jaas := k.file("server.jaas")
	write := func(name, text string) {
		t.Helper()
		must.OK(t, os.WriteFile(name, []byte(text), 0o600))
	}
	write(jaas, fmt.Sprintf(kerberosServer, k.keytab(t, "zookeeper/localhost", "server.keytab")))
	e, err := cluster.Start(cluster.Options{
		Kind: kind, Binary: zlockd, Dev: true, Flags: []string{"--sasl-users", jaas, "--log-level", "debug"},
		JVM: []string{"-Djava.security.auth.login.config=" + jaas, "-Djava.security.krb5.conf=" +
			k.file("krb5.conf")},
		Config: append([]string{"authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
			config...),
	})
	must.OK(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", kind, e.Servers[0].Log(40))
		}
		e.Close()
	})
	_, port := must.Get2(net.SplitHostPort(e.Servers[0].Client))(t)
	addr := "localhost:" + port
	var facts []string
	kazoo := func(name string) {
		out := runFor(t, k.env, "/usr/bin/python3", "-B", "-W", "ignore", "testdata/kazoo/tickets.py", addr, name)
		facts = append(facts, strings.Split(strings.TrimSpace(out), "\n")...)
	}
	for _, p := range []string{"alice", "app/host"} {
		k.signIn(t, p)
		name := strings.ReplaceAll(p, "/", "-")
		kazoo(name)

		client := k.file("client.jaas")
		write(client, fmt.Sprintf(kerberosClient, k.file("clients.keytab"), p))
		env := append(slices.Clone(k.env), "CLIENT_JVMFLAGS=-Djava.security.auth.login.config="+client+
			" -Djava.security.krb5.conf="+k.file("krb5.conf")+" -Dzookeeper.server.principal=zookeeper/localhost")
		out := runFor(t, env, "/usr/share/zookeeper/bin/zkCli.sh", "-server", addr, "whoami")
		for _, m := range regexp.MustCompile(`(?m)^(?:sasl|super): .*$`).FindAllString(out, -1) {
			facts = append(facts, "java "+m)
		}
		for _, node := range []string{"/" + name, "/" + name + "-foreign"} {
			facts = append(facts, "c "+runCli(t, k.env, "get "+node, cli, "-n", "GSSAPI", "-u", p, "-o", "localhost",
				"-h", addr))
		}
	}

	// The server's key is replaced by one of another kind. The server refuses tickets that are made with the new
	// key until its keytab has that key.
	k.admin(t, "cpw -randkey -e aes256-cts-hmac-sha384-192:normal zookeeper/localhost")
	k.signIn(t, "alice")
	kazoo("early")
	k.keytab(t, "zookeeper/localhost", "server.keytab")
	k.signIn(t, "alice")
	kazoo("renewed")
	return strings.Join(facts, "\n")
}

// runCli gives the C client's shell one line and returns its output. The shell ends when its input ends, so
// the input stays open until the output has come.
func runCli(t *testing.T, env []string, line string, words ...string) (result string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = env
	in := must.Get(cmd.StdinPipe())(t)
	errs := must.Get(cmd.StderrPipe())(t)
	must.OK(t, cmd.Start())
	defer cmd.Wait()
	defer in.Close()
	var all strings.Builder
	for lines := bufio.NewScanner(errs); lines.Scan(); {
		fmt.Fprintln(&all, lines.Text())
		// Send the line only when the shell is connected: it may lose earlier lines.
		if strings.Contains(lines.Text(), "CONNECTED_STATE") {
			fmt.Fprintln(in, line)
		}
		if strings.Contains(lines.Text(), "rc = ") {
			return lines.Text()
		}
	}
	t.Fatalf("%v says nothing of %q:\n%s", words, line, &all)
	return ""
}

// runFor runs a client that must end well within two minutes.
func runFor(t *testing.T, env []string, words ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env, cmd.WaitDelay = env, time.Second
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s\n%s", words, err, &out, &errs)
	}
	return out.String()
}

// kdc is a separate Kerberos server on a loopback port, with all its files in one directory. The test does
// not change the machine's own Kerberos.
type kdc struct {
	dir   string
	realm string
	env   []string // environment of processes that use this realm
}

const krb5Conf = `[libdefaults]
 default_realm = REALM
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 REALM = {
  kdc = KDC
 }
`

const kdcConf = `[kdcdefaults]
 kdc_listen = KDC
 kdc_tcp_listen = KDC
[realms]
 REALM = {
  database_name = DIR/principal
  acl_file = DIR/kadm5.acl
  key_stash_file = DIR/stash
  supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
 }
[logging]
 kdc = FILE:DIR/kdc.log
 admin_server = FILE:DIR/kadmin.log
 default = FILE:DIR/other.log
`

// startKDC starts the KDC of a realm that knows these principals.
func startKDC(t *testing.T, realm string, principals ...string) *kdc {
	t.Helper()
	need(t, "/usr/sbin/krb5kdc", "/usr/sbin/kdb5_util", "/usr/sbin/kadmin.local", "/usr/bin/kinit")
	ports := must.Get(cluster.FreePorts(1))(t)
	k := &kdc{dir: t.TempDir(), realm: realm}
	k.env = append(os.Environ(), "KRB5_CONFIG="+k.file("krb5.conf"), "KRB5_KDC_PROFILE="+k.file("kdc.conf"),
		"KRB5CCNAME="+k.file("cache"))
	words := strings.NewReplacer("KDC", ports[0], "DIR", k.dir, "REALM", realm)
	for name, text := range map[string]string{"krb5.conf": krb5Conf, "kdc.conf": kdcConf} {
		must.OK(t, os.WriteFile(k.file(name), []byte(words.Replace(text)), 0o600))
	}
	k.run(t, "/usr/sbin/kdb5_util", "create", "-s", "-r", k.realm, "-P", "master")
	for _, p := range principals {
		k.admin(t, "addprinc -randkey "+p)
	}
	cmd := exec.Command("/usr/sbin/krb5kdc", "-n", "-P", k.file("pid"))
	cmd.Env, cmd.SysProcAttr = k.env, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	must.Await(t, "the KDC answers", time.Minute, func() bool {
		c, err := net.Dial("tcp", ports[0])
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return k
}

func (k *kdc) file(name string) string { return filepath.Join(k.dir, name) }

func (k *kdc) run(t *testing.T, words ...string) string {
	t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = k.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", words, err, out)
	}
	return string(out)
}

func (k *kdc) admin(t *testing.T, query string) {
	t.Helper()
	k.run(t, "/usr/sbin/kadmin.local", "-r", k.realm, "-q", query)
}

// keytab() writes a principal's present keys into a file.
func (k *kdc) keytab(t *testing.T, principal, name string) string {
	t.Helper()
	k.admin(t, "ktadd -norandkey -k "+k.file(name)+" "+principal)
	return k.file(name)
}

// signIn puts a fresh ticket of a principal into the cache.
func (k *kdc) signIn(t *testing.T, principal string) {
	t.Helper()
	k.run(t, "/usr/bin/kinit", "-k", "-t", k.keytab(t, principal, "clients.keytab"), principal)
}
