package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// fakeKerberos accepts each keytab, and each rule except a senseless one.
type fakeKerberos struct{ asked *settings.KerberosOptions }

func (fakeKerberos) CheckRules(rules string) error {
	if strings.Contains(rules, "nonsense") {
		return errors.New("nonsense")
	}
	return nil
}

func (f fakeKerberos) New(o settings.KerberosOptions) (sasl.Mechanism, error) {
	if f.asked != nil {
		*f.asked = o
	}
	return noMechanism{}, nil
}

type noMechanism struct{}

func (noMechanism) Begin(io.Reader) sasl.Negotiation { return nil }

// The mechanism gets its options from the flags and the JAAS file. The flags take precedence.
func TestKerberosGetsItsOptions(t *testing.T) {
	jaas := filepath.Join(t.TempDir(), "jaas.conf")
	must.OK(t, os.WriteFile(jaas, []byte("Server { com.sun.security.auth.module.Krb5LoginModule required "+
		`keyTab="/etc/zk.keytab" principal="zookeeper/a@R"; };`), 0o600))
	for name, x := range map[string]struct {
		s    settings.Settings
		want string
	}{
		"file":  {settings.Settings{SASLUsers: jaas}, "/etc/zk.keytab zookeeper/a@R"},
		"flags": {settings.Settings{SASLUsers: jaas, Keytab: "/k", Principal: "zookeeper/b@R"}, "/k zookeeper/b@R"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked settings.KerberosOptions
			x.s.Kerberos, x.s.AuthToLocal, x.s.RemoveHost = fakeKerberos{&asked}, "RULE", true
			m := must.Get(newSASL(&x.s, slog.New(slog.DiscardHandler)))(t)
			expect.Equal(t, m.GSSAPI, sasl.Mechanism(noMechanism{}), "the mechanism")
			expect.Equal(t, fmt.Sprint(asked.Keytab, " ", asked.Principal), x.want, "keytab and principal")
			names := fmt.Sprint(asked.Rules, " ", asked.RemoveHost, asked.RemoveRealm)
			expect.Equal(t, names, "RULE true false", "names")
		})
	}
}

// After SIGHUP, clients authenticate by the rules of the new configuration, and the log says so.
func TestKerberosTakesEffectAtSIGHUP(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	write := func(more string) {
		must.OK(t, os.WriteFile(file, []byte("clientPort=2181\ndataDir="+dir+"\n"+more), 0o600))
	}
	write("")
	args := []string{"--config", file}
	d := &daemon{kerberos: fakeKerberos{}}
	s := must.Get(settings.Read(args, d.kerberos))(t)
	write("security.auth_to_local=RULE:[1:$1]\nkerberos.removeHostFromPrincipal=true\nsnapCount=7\n")
	took, restart, err := d.rereadOnce(args, s, new(fakeProcess), nil)
	must.OK(t, err)
	expect.List(t, took, []string{"kerberos-remove-host", "kerberos-rules"}, "took effect")
	expect.List(t, restart, []string{"snapshot-entries"}, "needs a restart")
}

func TestKerberosOfAJAASFileIsRefusedWithoutIt(t *testing.T) {
	jaas := filepath.Join(t.TempDir(), "jaas.conf")
	const text = `Server { com.sun.security.auth.module.Krb5LoginModule required keyTab="/etc/zk.keytab"; };`
	must.OK(t, os.WriteFile(jaas, []byte(text), 0o600))
	_, err := newSASL(&settings.Settings{SASLUsers: jaas}, slog.New(slog.DiscardHandler))
	must.Is(t, err, settings.ErrNoKerberos)
	expect.Has(t, err.Error(), jaas, "the error names the file")
}
