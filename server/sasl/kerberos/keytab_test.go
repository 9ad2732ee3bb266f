package kerberos

import (
	"bytes"
	"crypto/rand"
	"encoding/asn1"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestKeytabOfKadmin(t *testing.T) {
	b, _ := recorded(t)
	k, err := parseKeytab(b)
	must.OK(t, err)
	must.Equal(t, len(k), 8, "keys")
	for i := range b {
		if cut, err := parseKeytab(b[:i]); err == nil && len(cut) >= len(k) {
			t.Errorf("%d of %d bytes hold %d keys", i, len(b), len(cut))
		}
	}
	who, mine, err := k.choose("zookeeper/localhost")
	if expect.OK(t, err) {
		expect.Equal(t, who.String(), "zookeeper/localhost@ZK.TEST", "who")
		if expect.Equal(t, len(mine), 4, "keys of the principal") {
			expect.Equal(t, mine[0].version, 2, "version")
		}
	}
	// A key that was removed leaves a hole.
	size := 4 + int(b[5])
	hole := bytes.Clone(b)
	hole[2], hole[3], hole[4], hole[5] = 0xff, 0xff, 0xff, -b[5]
	rest, err := parseKeytab(hole)
	if expect.OK(t, err, "%d bytes of hole", size) {
		if expect.Equal(t, len(rest), 7, "%d bytes of hole: keys", size) {
			expect.Equal(t, rest[0].principal.String(), k[1].principal.String(), "%d bytes of hole: principal", size)
		}
	}
	again, err := parseKeytab(marshalKeytab(k))
	if expect.OK(t, err, "written and read") {
		if expect.Equal(t, len(again), len(k), "written and read: keys") {
			expect.List(t, again[7].key.Value, k[7].key.Value, "written and read: the last key")
		}
	}
}

func TestKeytabFiles(t *testing.T) {
	old := sessionKey{23, make([]byte, 16)}
	one, other := keytabEntry{server, 300, newKey(18)}, keytabEntry{alice, 1, newKey(17)}
	for name, c := range map[string]struct {
		entries   keytab
		principal string
		mode      os.FileMode
		want, err string
	}{
		"the only one":  {keytab{one, one}, "", 0o600, "zookeeper/host@ZK.TEST", ""},
		"said":          {keytab{one, other}, "alice@ZK.TEST", 0o640, "alice@ZK.TEST", ""},
		"without realm": {keytab{one, other}, "zookeeper/host", 0o600, "zookeeper/host@ZK.TEST", ""},
		"two": {keytab{one, other}, "", 0o600, "",
			"alice@ZK.TEST, zookeeper/host@ZK.TEST: name this server's principal with --kerberos-principal"},
		"not there": {keytab{one, other}, "bob@ZK.TEST", 0o600, "",
			"no AES key of bob@ZK.TEST, but keys of alice@ZK.TEST, zookeeper/host@ZK.TEST"},
		"only old keys": {keytab{{server, 1, old}}, "", 0o600, "",
			"no AES key"},
		"old keys as well":    {keytab{{server, 1, old}, one}, "", 0o600, "zookeeper/host@ZK.TEST", ""},
		"open":                {keytab{one}, "", 0o644, "", "every user of this machine (mode 0644): run chmod o-rwx"},
		"empty":               {nil, "", 0o600, "", "holds no key"},
		"no principal":        {keytab{one}, "a//b@C", 0o600, "", "is not a principal"},
		"no principal at all": {keytab{one}, "@C", 0o600, "", "is not a principal"},
	} {
		file := filepath.Join(t.TempDir(), "keytab")
		must.OK(t, os.WriteFile(file, marshalKeytab(c.entries), c.mode))
		must.OK(t, os.Chmod(file, c.mode))
		s, err := New(Options{Keytab: file, Principal: c.principal})
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %q", name, err, c.err)
		case c.err == "" && (err != nil || s.Principal() != c.want):
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, file := range []string{filepath.Join(t.TempDir(), "missing"), t.TempDir(), "testdata/recorded.txt"} {
		_, err := New(Options{Keytab: file})
		if expect.Fails(t, err, "%s", file) {
			expect.Has(t, err.Error(), file, "%s: error", file)
		}
	}
}

func TestKeytabIsReadAgain(t *testing.T) {
	before, after := newKey(18), newKey(18)
	s, file := newService(t, Names{}, keytab{{server, 1, before}})
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	at := now
	try := func(key sessionKey, version int64) error {
		t.Helper()
		c := newClient(key, version, false)
		_, _, err := s.accept(c.hello(), at, nil)
		return err
	}
	replace := func(b []byte) {
		t.Helper()
		must.OK(t, os.WriteFile(file, b, 0o600))
		// A file system may store times only in whole seconds.
		must.OK(t, os.Chtimes(file, at, at.Add(time.Second)))
	}
	expect.Fails(t, try(after, 2), "a ticket with a key that is not there yet")
	// kadmin keeps the old key in the file, for tickets that clients already have.
	whole := marshalKeytab(keytab{{server, 1, before}, {server, 2, after}})
	replace(whole[:20])
	at = at.Add(lookAgain)
	err := try(before, 1)
	if expect.OK(t, err, "while half a file is there") {
		expect.Has(t, log.String(), "cannot be used", "while half a file is there: log")
	}
	at = at.Add(time.Millisecond)
	replace(whole) // a ticket with the new key makes the server read the file at once
	for version, key := range []sessionKey{before, after} {
		expect.OK(t, try(key, int64(version)+1), "version %d", version+1)
	}
	expect.Has(t, log.String(), "keytab read again", "log %s", &log)
	// While the file is replaced, every user can read it for a moment.
	third := newKey(18)
	must.OK(t, os.Chmod(file, 0o604))
	at = at.Add(time.Second)
	replace(marshalKeytab(keytab{{server, 2, after}, {server, 3, third}}))
	at = at.Add(lookAgain)
	expect.Fails(t, try(third, 3), "a key in a file that is open to every user")
	must.OK(t, os.Chmod(file, 0o600))
	expect.OK(t, try(third, 3), "a key in a file whose mode was put right")
	replace(marshalKeytab(keytab{{alice, 3, newKey(18)}}))
	at = at.Add(lookAgain)
	expect.OK(t, try(after, 2), "another's keytab")
}

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
		// A principal that no rule matches keeps its whole name, even if the host or the realm must be removed.
		{"bob@ELSEWHERE", "", true, true, "bob@ELSEWHERE"},
		{"app/host@ELSEWHERE", rules[:strings.Index(rules, "\n")], true, true, "app/host@ELSEWHERE"},
		{"bob@OTHER", rules, false, true, "bob"},
		{"bob@OTHER", rules, false, false, "bob@OTHER"},
		{"svc/host@ZK.TEST", rules, true, true, "svc-all"},
		{"svc/host@ZK.TEST", rules, false, false, "svc-all/host@ZK.TEST"},
		{"app/banana@ZK.TEST", rules, true, true, "bAnAnA"},
		{"xyz@ZK.TEST", rules, true, true, "zy$"},
		{"bob@ZK.TEST", rules, true, true, "bob"},
		// A rule whose result contains a realm is not used.
		{"bob@ZK.TEST", "RULE:[1:$1@$0] DEFAULT", true, true, "bob@ZK.TEST"},
		{"bob@ZK.TEST", "RULE:[1:]", true, true, ""},
		{"a/b/c@ZK.TEST", "", true, true, ""},
	} {
		parsed, err := ParseRules(c.rules)
		must.OK(t, err, "%v", c.rules)
		p := must.Get(ParsePrincipal(c.principal))(t)
		n := Names{Rules: parsed, RemoveHost: c.removeHost, RemoveRealm: c.removeRealm, realm: "ZK.TEST"}
		got, err := n.identity(p)
		expect.Equal(t, got, c.want, "%s by %s, without host %v, realm %v", c.principal, c.rules, c.removeHost,
			c.removeRealm)
		expect.Equal(t, err == nil, c.want != "", "%s by %s, without host %v, realm %v: whether it succeeds",
			c.principal, c.rules, c.removeHost, c.removeRealm)
	}
}

func TestRules(t *testing.T) {
	for text, want := range map[string]string{
		"default":                   "is not a rule",
		"DEFAULT RULE":              "is not a rule",
		"RULE:[x:$1]":               "is not a rule",
		"RULE:[3:$1]":               "1 or 2 parts",
		"RULE:[0:$1]":               "1 or 2 parts",
		"RULE:[1:$2]":               "no part $2",
		"RULE:[99999999999999:$1]":  "1 or 2 parts",
		"RULE:[1:$1]s/a(?=b)/c/":    "unsupported Perl",
		"RULE:[1:$1]([)":            "missing closing",
		"RULE:[1:$1]s/(/x/":         "missing closing",
		"RULE:[1:$1]s/a/b/L":        "is not a rule",
		"RULE:[1:$1]/L DEFAULT":     "is not a rule",
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

// FuzzToken: a token that no KDC has made admits no client, and no token makes the server panic.
func FuzzToken(f *testing.F) {
	b, clients := recorded(f)
	for _, c := range clients {
		for _, token := range c[3:] {
			f.Add(sure(hex.DecodeString(token)))
		}
	}
	k := sure(parseKeytab(b))
	client := newClient(newKey(18), 1, true)
	f.Add(client.hello())
	var services []*Service
	for _, e := range k[:5] {
		s, _ := newService(f, Names{}, keytab{e})
		services = append(services, s)
	}
	f.Fuzz(func(t *testing.T, token []byte) {
		for _, s := range services {
			e := s.Begin(rand.Reader)
			answer, err := e.Answer(token, now)
			expect.Fails(t, err, "answered by %x", answer)
			who, _, done := e.User()
			expect.That(t, !done, "let in as %s", who)
		}
	})
}

// FuzzInside decodes data that only a KDC or a client with a ticket can encrypt, and the last token of such a
// client.
func FuzzInside(f *testing.F) {
	c := newClient(newKey(18), 1, true)
	f.Add(sure(asn1.MarshalWithParams(c.secret, application(tagTicketSecret))))
	f.Add(sure(asn1.MarshalWithParams(c.auth, application(tagAuthenticator))))
	f.Add(mirror(c.key, 0, "\x01\x00\x00\x00bob"))
	f.Add(mirror(newKey(17), 0, ""))
	f.Fuzz(func(t *testing.T, b []byte) {
		var secret ticketSecret
		if decode(b, &secret, tagTicketSecret) == nil {
			if p, err := secret.check(now); err == nil && p.check() != nil {
				t.Errorf("taken: %v", p)
			}
		}
		req := apReq{Authenticator: sure(c.key.seal(b, usageAuthenticator))}
		if a, _, err := openAuthenticator(&req, c.key, alice, now); err == nil && a.Time.Sub(now).Abs() > 2*Skew {
			t.Errorf("taken: %v", a)
		}
		own := context{key: c.key}
		if text, err := own.unwrap(b); err == nil && !bytes.Equal(b, mirror(c.key, 0, string(text))) &&
			len(b) < wrapHeader {
			t.Errorf("%x is taken for %q", b, text)
		}
	})
}

func FuzzKeytab(f *testing.F) {
	b, _ := recorded(f)
	f.Add(b)
	f.Add([]byte{5, 2, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := parseKeytab(b)
		if err != nil {
			return
		}
		expect.Equal(t, len(must.Get(parseKeytab(marshalKeytab(k)))(t)), len(k),
			"%d keys, written and read", len(k))
	})
}

// FuzzRules: ParseRules() refuses a text, or returns rules that can be applied.
func FuzzRules(f *testing.F) {
	f.Add("RULE:[2:$1%$2](svc%.*)s/%.*/-all/g DEFAULT", "app", "host")
	f.Add(`RULE:[1:$1]s/(a)/\$$1/`, "banana", "")
	f.Fuzz(func(t *testing.T, text, first, second string) {
		p := Principal{[]string{first}, "ZK.TEST"}
		if second != "" {
			p.Parts = append(p.Parts, second)
		}
		rules, err := ParseRules(text)
		if err != nil || p.check() != nil {
			return
		}
		if who, err := (Names{Rules: rules, realm: "ZK.TEST"}).identity(p); err == nil && who == "" {
			t.Error("nobody is let in")
		}
	})
}
