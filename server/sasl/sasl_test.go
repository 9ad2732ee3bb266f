package sasl

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

var users = Users{"bob": "bob's secret", "super": "top", "jürgen": "schlüssel"}

// answer() returns a client's answer to a challenge, made with the password. change() may spoil the
// answer.
func answer(t *testing.T, challenge []byte, user, password string, latin1 bool,
	change func(map[string]string)) []byte {
	t.Helper()
	c := must.Get(parseDirectives(challenge))(t)
	d := map[string]string{"username": user, "realm": c["realm"], "nonce": c["nonce"], "cnonce": "abc",
		"nc":  "00000001",
		"qop": "auth", "digest-uri": "zookeeper/zk-sasl-md5"}
	if change != nil {
		change(d)
	}
	if d["response"] == "" {
		d["response"] = proof(sessionKey(user, password, d, latin1), "AUTHENTICATE:"+d["digest-uri"], d)
	}
	var b bytes.Buffer
	for k, v := range d {
		fmt.Fprintf(&b, `%s="%s",`, k, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v))
	}
	return b.Bytes()
}

func begin(t *testing.T) (Negotiation, []byte) {
	t.Helper()
	e := must.Get((&Mechanisms{Users: users}).Begin(true, strings.NewReader(strings.Repeat("random", 10))))(t)
	challenge := must.Get(e.Answer(nil, now))(t)
	return e, challenge
}

// The example of RFC 2831, section 4.
func TestExampleOfTheRFC(t *testing.T) {
	d := map[string]string{"realm": "elwood.innosoft.com", "nonce": "OA6MG9tEQGm2hh", "cnonce": "OA6MHXh6VqTrRk",
		"nc": "00000001"}
	key := sessionKey("chris", "secret", d, false)
	if got := proof(key, "AUTHENTICATE:imap/elwood.innosoft.com", d); got != "d388dad90d4bbd760a152321f2143af7" {
		t.Errorf("response = %s", got)
	}
	expect.Equal(t, proof(key, ":imap/elwood.innosoft.com", d), "ea40f60335c427b5527b84dbabcdfffd",
		"rspauth")
}

func TestWhoKnowsThePasswordIsLetIn(t *testing.T) {
	for _, latin1 := range []bool{false, true} {
		for user, password := range users {
			e, challenge := begin(t)
			reply, err := e.Answer(answer(t, challenge, user, password, latin1, func(d map[string]string) {
				d["authzid"] = user
			}), now)
			must.OK(t, err, "%v", user)
			expect.That(t, bytes.HasPrefix(reply, []byte("rspauth=")), "%s: reply %q", user, reply)
			got, _, ok := e.User()
			expect.That(t, ok, "User() = %q, %v, want %q", got, ok, user)
			expect.Equal(t, got, user)
		}
	}
}

func TestEverybodyElseIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		user, password string
		change         func(map[string]string)
		want           error
	}{
		"wrong password": {"bob", "other", nil, errRefused},
		"unknown user":   {"eve", "", nil, errRefused},
		"another's rights": {"bob", users["bob"], func(d map[string]string) { d["authzid"] = "super" },
			errRefused},
		"another nonce": {"bob", users["bob"], func(d map[string]string) { d["nonce"] = "old" },
			errProtocol},
		"a nonce twice": {"bob", users["bob"], func(d map[string]string) { d["nc"] = "00000002" },
			errProtocol},
		"another realm": {"bob", users["bob"], func(d map[string]string) { d["realm"] = "elsewhere" },
			errProtocol},
		"another service": {"bob", users["bob"], func(d map[string]string) { d["digest-uri"] = "imap/host" },
			errProtocol},
		"protection": {"bob", users["bob"], func(d map[string]string) { d["qop"] = "auth-conf" },
			errProtocol},
		"no nonce of its own": {"bob", users["bob"], func(d map[string]string) { d["cnonce"] = "" }, errProtocol},
		"no answer": {"bob", users["bob"], func(d map[string]string) { d["response"] = "0" },
			errRefused},
		"an endless token": {"bob", users["bob"], func(d map[string]string) {
			d["x"] = strings.Repeat("y", maxToken)
		}, errProtocol},
		"a user without a name": {"", "", nil, errProtocol},
	} {
		e, challenge := begin(t)
		token := answer(t, challenge, c.user, c.password, false, c.change)
		expect.Is(t, expect.Err(e.Answer(token, now)), c.want, "%s", name)
		if user, _, ok := e.User(); ok {
			t.Errorf("%s: let in as %q", name, user)
		}
		expect.Fails(t, expect.Err(e.Answer(answer(t, challenge, "bob", users["bob"], false, nil), now)),
			"%s: a second try in the same exchange", name)
	}
}

// The answer of one exchange is refused in the next.
func TestReplay(t *testing.T) {
	first, challenge := begin(t)
	token := answer(t, challenge, "bob", users["bob"], false, nil)
	must.Get(first.Answer(token, now))(t)
	second := must.Get((&Mechanisms{Users: users}).Begin(true, strings.NewReader(strings.Repeat("another", 10))))(t)
	must.Get(second.Answer(nil, now))(t)
	expect.Is(t, expect.Err(second.Answer(token, now)), errProtocol, "a replayed answer")
}

func TestDirectives(t *testing.T) {
	d, err := parseDirectives([]byte(`a=1, b="x\"y\\z" ,,c = d`))
	if expect.OK(t, err) {
		expect.Equal(t, d["a"], "1")
		expect.Equal(t, d["b"], `x"y\z`)
		expect.Equal(t, d["c"], "d")
		expect.Equal(t, len(d), 3, "len(d)")
	}
	for _, bad := range []string{`a`, `a="`, `a="\`, `a="x"y`, `=x`, `a=1,a=2`, `"a"=1`} {
		if d, err := parseDirectives([]byte(bad)); err == nil {
			t.Errorf("%s: %q", bad, d)
		}
	}
}

func FuzzDirectives(f *testing.F) {
	f.Add([]byte(`username="bob",realm="zk-sasl-md5",nonce="x",nc=00000001`))
	f.Fuzz(func(t *testing.T, token []byte) {
		d, err := parseDirectives(token)
		for k, v := range d {
			expect.That(t, err != nil || len(k)+len(v) <= len(token), "%q out of %d bytes", k, len(token))
		}
	})
}

const jaas = `// a comment
Client { x.DigestLoginModule required username="bob"; };
Server {
   /* another */ org.apache.zookeeper.server.auth.DigestLoginModule required
   user_super="admin \"secret\""
   user_bob=plain;
};`

func TestUsersFiles(t *testing.T) {
	for _, c := range []struct {
		name, text string
		mode       os.FileMode
		want       Users
		err        string
	}{
		{"ours", "# who\n\nbob:a:b\nsuper: top\r\n", 0o600, Users{"bob": "a:b", "super": " top"}, ""},
		{"jaas", jaas, 0o640, Users{"super": `admin "secret"`, "bob": "plain"}, ""},
		{"open", "bob:x\n", 0o644, nil, "read by every user"},
		{"empty", "\n", 0o600, nil, "no user"},
		{"no password", "bob:\n", 0o600, nil, "line 1: user \"bob\" has no password"},
		{"no colon", "bob\n", 0o600, nil, "line 1: want name:password"},
		{"twice", "bob:x\nbob:y\n", 0o600, nil, "line 2: user \"bob\" is listed twice"},
		{"no section", "Client {\n};", 0o600, nil, "no section Server"},
		{"no end", "Server {\n user_a=b", 0o600, nil, "no end"},
		{"ldap", "Server { com.sun.security.auth.module.LdapLoginModule required; };", 0o600, nil,
			"LdapLoginModule is not supported"},
		{"kerberos without keys",
			"Server { com.sun.security.auth.module.Krb5LoginModule required principal=\"a/b\"; };", 0o600, nil,
			"has no keyTab"},
		{"not text", "bob:\xff\n", 0o600, nil, "UTF-8"},
	} {
		path := filepath.Join(t.TempDir(), "users")
		must.OK(t, os.WriteFile(path, []byte(c.text), c.mode))
		must.OK(t, os.Chmod(path, c.mode))
		got, err := ReadFile(path)
		if c.err != "" {
			if expect.Fails(t, err, "%s", c.name) {
				expect.Has(t, err.Error(), c.err, "%s: error", c.name)
			}
			continue
		}
		if expect.OK(t, err, "%s", c.name) {
			expect.Equal(t, len(got.Users), len(c.want), "%s: len(got.Users)", c.name)
		}
		for name, password := range c.want {
			expect.Equal(t, got.Users[name], password, "%s: %s has %q", c.name, name, got.Users[name])
		}
	}
}

func TestKerberosInAJAASFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jaas")
	const module = `Client { x.Krb5LoginModule required keyTab="/client" principal="bob"; };
Server {
   com.sun.security.auth.module.Krb5LoginModule required
   useKeyTab=true keyTab="/etc/zk.keytab" storeKey=true useTicketCache=false
   principal="zookeeper/host@REALM";
`
	for text, users := range map[string]int{
		module + "};": 0,
		module + `org.apache.zookeeper.server.auth.DigestLoginModule required user_bob=x principal="ignored"; };`: 1,
	} {
		must.OK(t, errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, 0o600)))
		f, err := ReadFile(path)
		if expect.OK(t, err, "%s", text) {
			expect.Equal(t, f.Keytab, "/etc/zk.keytab", "%s: f.Keytab", text)
			expect.Equal(t, f.Principal, "zookeeper/host@REALM", "%s: f.Principal", text)
			expect.Equal(t, len(f.Users), users, "%s: len(f.Users)", text)
		}
		// The file is a secret only if it contains passwords.
		must.OK(t, os.Chmod(path, 0o644))
		if _, err := ReadFile(path); (err != nil) != (users > 0) {
			t.Errorf("open to every user, with %d users: %v", users, err)
		}
	}
}

// A file of users may have maxUsersFile bytes, but not more.
func TestAFileOfUsersHasABound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	line := "bob:secret\n"
	text := []byte(strings.Repeat("# a comment\n", maxUsersFile/12+1))
	copy(text[maxUsersFile-len(line)-1:], "\n"+line)
	must.OK(t, os.WriteFile(path, text[:maxUsersFile], 0o600))
	f, err := ReadFile(path)
	if expect.OK(t, err, "%d users, %v", len(f.Users), err) {
		expect.Equal(t, len(f.Users), 1, "%d users, %v: len(f.Users)", len(f.Users), err)
	}
	must.OK(t, os.WriteFile(path, append(text[:maxUsersFile], '\n'), 0o600))
	_, err = ReadFile(path)
	if expect.Fails(t, err) {
		expect.Has(t, err.Error(), "a file of users has at most 8388608", "error")
	}
}
