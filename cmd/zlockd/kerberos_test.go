//go:build kerberos

package main

import (
	"strings"
	"testing"

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
