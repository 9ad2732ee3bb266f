//go:build kerberos

package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestKerberosOfAConfiguration(t *testing.T) {
	const text = "clientPort=2181\ndataDir=$DIR\nkerberos.removeHostFromPrincipal=true\n" +
		"kerberos.removeRealmFromPrincipal=TRUE\nsecurity.auth_to_local="
	dir := t.TempDir()
	s := must.Get(load(t, dir, text+"RULE:[1:$1]\\\n  DEFAULT"))(t)
	if len(s.notes) != 0 || !s.removeHost || s.removeRealm || s.authToLocal != "RULE:[1:$1]DEFAULT" {
		t.Errorf("notes %v, host %v, realm %v, rules %q", s.notes, s.removeHost, s.removeRealm, s.authToLocal)
	}
	if _, err := load(t, dir, text+"RULE:nonsense"); err == nil ||
		!strings.Contains(err.Error(), "--kerberos-rules") {
		t.Errorf("rules that cannot be read: %v", err)
	}
}

// Clients authenticate by the rules of the configuration that SIGHUP has read, and the log says so.
func TestKerberosTakesEffectAtSIGHUP(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	write := func(more string) {
		must.OK(t, os.WriteFile(file, []byte("clientPort=2181\ndataDir="+dir+"\n"+more), 0o600))
	}
	write("")
	args := []string{"--config", file}
	s := must.Get(readSettings(args))(t)
	write("security.auth_to_local=RULE:[1:$1]\nkerberos.removeHostFromPrincipal=true\nsnapCount=7\n")
	took, restart, err := new(daemon).rereadOnce(args, s, new(fakeProcess), nil)
	must.OK(t, err)
	expect.List(t, took, []string{"kerberos-remove-host", "kerberos-rules"}, "took effect")
	expect.List(t, restart, []string{"snapshot-entries"}, "needs a restart")
}
