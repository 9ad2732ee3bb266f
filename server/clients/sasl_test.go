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
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
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
	must.OK(t, err)
	expect.Equal(t, f.Zxid, 0, "zxid")
	d := jute.NewDecoder(f.Body)
	answer := d.Buffer()
	must.OK(t, d.Err())
	return f.Code, answer
}

func authenticate(t *testing.T, c *wire.Conn, user, password string) jute.ErrCode {
	t.Helper()
	code, challenge := saslStep(t, c, []byte{})
	if code != jute.OK {
		return code
	}
	code, answer := saslStep(t, c, digestMD5(challenge, user, password))
	expect.That(t, code != jute.OK || bytes.HasPrefix(answer, []byte("rspauth=")),
		"the server proves nothing: %q", answer)
	return code
}

func TestSASL(t *testing.T) {
	r := newRig(t, Options{SASL: &sasl.Mechanisms{Users: saslUsers}, SASLSuper: "root"})
	a, other := r.client(), r.client()
	must.Equal(t, authenticate(t, a, "bob", "secret"), jute.OK)
	bob := jute.ID{Scheme: "sasl", ID: "bob"}
	if ids := who(t, a); len(ids) != 2 || !ids[bob] {
		t.Errorf("identities %v", ids)
	}
	call(t, a, jute.OK, jute.OpCreate, wire.Create("/bobs", []byte("x"), []jute.ACL{{Perms: 31, ID: bob}}, 0))
	call(t, other, jute.NoAuth, jute.OpGetData, wire.PathWatch("/bobs", false))
	// A second round on one connection, for another user.
	must.Equal(t, authenticate(t, a, "root", "top"), jute.OK)
	if ids := who(t, a); !ids[bob] || !ids[superID] {
		t.Errorf("identities %v", ids)
	}
	// Failure is answered, then the connection ends; the session does not.
	session := other.Session
	expect.Equal(t, authenticate(t, other, "bob", "wrong"), jute.AuthFailed, "a wrong password")
	must.OK(t, other.Closed())
	b := r.attach(session)
	expect.Equal(t, authenticate(t, b, "eve", ""), jute.AuthFailed, "an unknown user")
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
	must.OK(t, c.Closed())
}

func TestRequireAuth(t *testing.T) {
	r := newRig(t, Options{SASL: &sasl.Mechanisms{Users: saslUsers}, RequireAuth: []string{"sasl", "digest"}})
	for op, body := range map[jute.OpCode]wire.Body{
		jute.OpGetData: wire.PathWatch("/", false), jute.OpSetData: wire.SetData("/", nil, -1), jute.OpWhoAmI: {},
		jute.OpCreate: wire.Create("/x", nil, jute.WorldAnyone, 0),
	} {
		c := r.client()
		f := call(t, c, jute.SessionClosedRequireAuth, op, body)
		expect.Equal(t, f.Zxid, 0, "%v: zxid", op)
		must.OK(t, c.Closed())
	}
	a := r.client()
	must.Equal(t, authenticate(t, a, "bob", "secret"), jute.OK)
	call(t, a, jute.OK, jute.OpCreate, wire.Create("/x", nil, jute.WorldAnyone, 0))
	b := r.client()
	call(t, b, jute.OK, jute.OpAuth, wire.Auth("digest", "u:p"))
	call(t, b, jute.OK, jute.OpGetData, wire.PathWatch("/x", false))
	c := r.client()
	expect.Equal(t, authenticate(t, c, "bob", "wrong"), jute.SessionClosedRequireAuth, "a wrong password")
}
