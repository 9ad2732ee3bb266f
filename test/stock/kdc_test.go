//go:build stock && kerberos

package stock

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
)

// kdc is a Kerberos of its own, on a loopback port, with all its files in one
// directory. What the machine has of Kerberos is not touched.
type kdc struct {
	dir   string
	realm string
	env   []string // for processes that use this realm
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

// keytab writes a principal's keys, as they are, into a file.
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
