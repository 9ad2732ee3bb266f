//go:build !kerberos

package daemon

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server without Kerberos refuses every option that asks for it, and says how to build one that has it.
func TestKerberosIsRefusedWhereItIsNotBuilt(t *testing.T) {
	const base = "clientPort=2181\ndataDir=$DIR\n"
	for _, test := range []struct {
		flag, text string
		args       []string
	}{
		{"keytab", base, []string{"--kerberos-keytab", "/etc/zlockd.keytab"}},
		{"principal", base, []string{"--kerberos-principal", "zookeeper/host@REALM"}},
		{"rules", base + "security.auth_to_local=RULE:[1:$1]", nil},
		{"remove-host", base + "kerberos.removeHostFromPrincipal=true", nil},
		{"remove-realm", base, []string{"--kerberos-remove-realm"}},
	} {
		_, err := load(t, t.TempDir(), test.text, test.args...)
		if !errors.Is(err, errNoKerberos) || !strings.Contains(err.Error(), "--kerberos-"+test.flag+": ") {
			t.Errorf("--kerberos-%s: %v", test.flag, err)
		}
	}
	expect.Has(t, errNoKerberos.Error(), "make build TAGS=kerberos",
		"it does not say what to do: %v", errNoKerberos)
}

func TestKerberosOfAJAASFileIsRefusedWhereItIsNotBuilt(t *testing.T) {
	jaas := filepath.Join(t.TempDir(), "jaas.conf")
	const text = `Server { com.sun.security.auth.module.Krb5LoginModule required keyTab="/etc/zk.keytab"; };`
	must.OK(t, os.WriteFile(jaas, []byte(text), 0o600))
	_, err := newSASL(&settings{saslUsers: jaas}, slog.New(slog.DiscardHandler))
	expect.That(t, errors.Is(err, errNoKerberos) && strings.Contains(err.Error(), jaas), "%v", err)
}
