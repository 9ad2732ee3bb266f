//go:build kerberos

package kerberos

import (
	"strings"
	"testing"
)

func TestIdentities(t *testing.T) {
	const rules = `RULE:[1:$1@$0](.*@OTHER)s/@OTHER//
		RULE:[2:$1%$2](svc%.*)s/%.*/-all/ RULE:[2:$2]s/a/A/g RULE:[1:$1](x.*)s/x(.)(.*)/$2$1\$/ DEFAULT`
	for _, c := range []struct {
		principal, rules        string
		removeHost, removeRealm bool
		want                    string
	}{
		{"bob@ZK.TEST", "", false, false, "bob@ZK.TEST"},
		{"bob@ZK.TEST", "DEFAULT", false, true, "bob"},
		{"app/host@ZK.TEST", "", false, false, "app/host@ZK.TEST"},
		{"app/host@ZK.TEST", "", true, false, "app@ZK.TEST"},
		{"app/host@ZK.TEST", "", false, true, "app/host"},
		{"app/host@ZK.TEST", "", true, true, "app"},
		// Whom no rule means keeps the whole name, whatever must be removed.
		{"bob@ELSEWHERE", "", true, true, "bob@ELSEWHERE"},
		{"app/host@ELSEWHERE", rules[:strings.Index(rules, "\n")], true, true, "app/host@ELSEWHERE"},
		{"bob@OTHER", rules, false, true, "bob"},
		{"bob@OTHER", rules, false, false, "bob@OTHER"},
		{"svc/host@ZK.TEST", rules, true, true, "svc-all"},
		{"svc/host@ZK.TEST", rules, false, false, "svc-all/host@ZK.TEST"},
		{"app/banana@ZK.TEST", rules, true, true, "bAnAnA"},
		{"xyz@ZK.TEST", rules, true, true, "zy$"},
		{"bob@ZK.TEST", rules, true, true, "bob"},
		// A rule that leaves a name with a realm in it does not count.
		{"bob@ZK.TEST", "RULE:[1:$1@$0] DEFAULT", true, true, "bob@ZK.TEST"},
		{"bob@ZK.TEST", "RULE:[1:]", true, true, ""},
		{"a/b/c@ZK.TEST", "", true, true, ""},
	} {
		parsed, err := ParseRules(c.rules)
		if err != nil {
			t.Fatal(c.rules, err)
		}
		p, err := ParsePrincipal(c.principal)
		if err != nil {
			t.Fatal(err)
		}
		n := Names{Rules: parsed, RemoveHost: c.removeHost, RemoveRealm: c.removeRealm, realm: "ZK.TEST"}
		got, err := n.identity(p)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s by %s, without host %v, realm %v: %q, %v; want %q", c.principal, c.rules, c.removeHost,
				c.removeRealm, got, err, c.want)
		}
	}
}

func TestRules(t *testing.T) {
	for text, want := range map[string]string{
		"default":                   "is no rule",
		"DEFAULT RULE":              "is no rule",
		"RULE:[x:$1]":               "is no rule",
		"RULE:[3:$1]":               "1 or 2 parts",
		"RULE:[0:$1]":               "1 or 2 parts",
		"RULE:[1:$2]":               "no part $2",
		"RULE:[99999999999999:$1]":  "1 or 2 parts",
		"RULE:[1:$1]s/a(?=b)/c/":    "unsupported Perl",
		"RULE:[1:$1]([)":            "missing closing",
		"RULE:[1:$1]s/(/x/":         "missing closing",
		"RULE:[1:$1]s/a/b/L":        "is no rule",
		"RULE:[1:$1]/L DEFAULT":     "is no rule",
		"RULE:[1:$1](.*)DEFAULT":    "",
		"  RULE:[2:$1;$2]\tDEFAULT": "",
		"":                          "",
	} {
		_, err := ParseRules(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
