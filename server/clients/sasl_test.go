package clients

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"regexp"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/test/wire"
)

var saslUsers = sasl.Users{"bob": "secret", "root": "top"}

// digestMD5 is a client's answer to a challenge.
func digestMD5(challenge []byte, user, password string) []byte {
	sum := func(s string) string { h := md5.Sum([]byte(s)); return hex.EncodeToString(h[:]) }
	nonce := regexp.MustCompile(`nonce="([^"]*)"`).FindSubmatch(challenge)[1]
	key := md5.Sum([]byte(user + ":zk-sasl-md5:" + password))
	a1 := sum(fmt.Sprintf("%s:%s:cnonce", key[:], nonce))
	response := sum(fmt.Sprintf("%s:%s:00000001:cnonce:auth:%s", a1, nonce,
		sum("AUTHENTICATE:zookeeper/zk-sasl-md5")))
	return fmt.Appendf(nil,
		`username="%s",realm="zk-sasl-md5",nonce="%s",cnonce="cnonce",nc=00000001,qop=auth,digest-uri="zookeeper/zk-sasl-md5",response=%s`,
		user, nonce, response)
}

// saslStep sends one token and returns the server's.
func saslStep(t *testing.T, c *wire.Conn, token []byte) (jute.ErrCode, []byte) {
	t.Helper()
	f, err := c.Call(jute.OpSASL, wire.Body{}.Buf(token))
	must(t, err)
	if f.Zxid != 0 {
		t.Errorf("zxid %d", f.Zxid)
	}
	d := jute.NewDecoder(f.Body)
	answer := d.Buffer()
	must(t, d.Err())
	return f.Code, answer
}

func authenticate(t *testing.T, c *wire.Conn, user, password string) jute.ErrCode {
	t.Helper()
	code, challenge := saslStep(t, c, []byte{})
	if code != jute.OK {
		return code
	}
	code, answer := saslStep(t, c, digestMD5(challenge, user, password))
	if code == jute.OK && !bytes.HasPrefix(answer, []byte("rspauth=")) {
		t.Errorf("the server proves nothing: %q", answer)
	}
	return code
}

func TestSASL(t *testing.T) {
	r := newRig(t, Options{SASL: &sasl.Mechanisms{Users: saslUsers}, SASLSuper: "root"})
	a, other := r.client(), r.client()
	if code := authenticate(t, a, "bob", "secret"); code != jute.OK {
		t.Fatal(code)
	}
	bob := jute.ID{Scheme: "sasl", ID: "bob"}
	if ids := who(t, a); len(ids) != 2 || !ids[bob] {
		t.Errorf("identities %v", ids)
	}
	call(t, a, jute.OK, jute.OpCreate, wire.Create("/bobs", []byte("x"), []jute.ACL{{Perms: 31, ID: bob}}, 0))
	call(t, other, jute.NoAuth, jute.OpGetData, wire.PathWatch("/bobs", false))
	// A second round on one connection, for another user.
	if code := authenticate(t, a, "root", "top"); code != jute.OK {
		t.Fatal(code)
	}
	if ids := who(t, a); !ids[bob] || !ids[superID] {
		t.Errorf("identities %v", ids)
	}
	// Failure is answered, then the connection ends; the session does not.
	session := other.Session
	if code := authenticate(t, other, "bob", "wrong"); code != jute.AuthFailed {
		t.Errorf("a wrong password: %v", code)
	}
	must(t, other.Closed())
	b := r.attach(session)
	if code := authenticate(t, b, "eve", ""); code != jute.AuthFailed {
		t.Errorf("an unknown user: %v", code)
	}
}

// Without users the answer is the reference's, but not forever.
func TestSASLWithoutUsers(t *testing.T) {
	r := newRig(t, Options{})
	c := r.client()
	// What else was proved counts for itself.
	for _, credentials := range []string{"u1:p1", "u2:p2", "u3:p3", "u4:p4"} {
		call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", credentials))
	}
	for range saslEmpty {
		if code, answer := saslStep(t, c, nil); code != jute.OK || answer != nil {
			t.Fatalf("%v %q", code, answer)
		}
	}
	if code, _ := saslStep(t, c, nil); code != jute.AuthFailed {
		t.Errorf("one round too many: %v", code)
	}
	must(t, c.Closed())
}

func TestRequireAuth(t *testing.T) {
	r := newRig(t, Options{SASL: &sasl.Mechanisms{Users: saslUsers}, RequireAuth: []string{"sasl", "digest"}})
	for op, body := range map[jute.OpCode]wire.Body{
		jute.OpGetData: wire.PathWatch("/", false), jute.OpSetData: wire.SetData("/", nil, -1), jute.OpWhoAmI: {},
		jute.OpCreate: wire.Create("/x", nil, jute.WorldAnyone, 0),
	} {
		c := r.client()
		f := call(t, c, jute.SessionClosedRequireAuth, op, body)
		if f.Zxid != 0 {
			t.Errorf("%v: zxid %d", op, f.Zxid)
		}
		must(t, c.Closed())
	}
	a := r.client()
	if code := authenticate(t, a, "bob", "secret"); code != jute.OK {
		t.Fatal(code)
	}
	call(t, a, jute.OK, jute.OpCreate, wire.Create("/x", nil, jute.WorldAnyone, 0))
	b := r.client()
	call(t, b, jute.OK, jute.OpAuth, wire.Auth("digest", "u:p"))
	call(t, b, jute.OK, jute.OpGetData, wire.PathWatch("/x", false))
	c := r.client()
	if code := authenticate(t, c, "bob", "wrong"); code != jute.SessionClosedRequireAuth {
		t.Errorf("a wrong password: %v", code)
	}
}
