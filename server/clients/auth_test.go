package clients

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree/acl"
)

// who() returns the identities that whoAmI reports for c.
func who(t *testing.T, c *wire.Conn) map[jute.ID]bool {
	t.Helper()
	ids := must.Get(c.WhoAmI())(t)
	set := map[jute.ID]bool{}
	for _, id := range ids {
		set[id] = true
	}
	expect.Equal(t, len(set), len(ids), "an identity is there twice: %v", ids)
	return set
}

func TestAuthAddsIdentities(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	ip := jute.ID{Scheme: "ip", ID: "127.0.0.1"}
	ids := who(t, c)
	if expect.Equal(t, len(ids), 1, "at first %v: len(ids)", ids) {
		expect.That(t, ids[ip], "at first %v: want ids[ip]", ids)
	}
	f := call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", "u1:p1"))
	expect.Equal(t, f.Zxid, 0, "auth reply %+v: f.Zxid", f)
	expect.Equal(t, len(f.Body), 0, "auth reply %+v: len(f.Body)", f)
	call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", "u1:p1"))
	call(t, c, jute.OK, jute.OpAuth, wire.Auth("ip", ""))
	ids = who(t, c)
	if expect.Equal(t, len(ids), 2, "then %v: len(ids)", ids) {
		expect.That(t, ids[jute.ID{Scheme: "digest", ID: "u1"}],
			"then %v: want ids[jute.ID{Scheme: \"digest\", ID: \"u1\"}]", ids)
	}
	b := r.attach(c.Session)
	expect.Equal(t, len(who(t, b)), 1, "identities outlive the connection")
}

func TestRequestsAreCheckedWithTheIdentitiesOfTheirTime(t *testing.T) {
	r := newRig(t, options.Options{})
	a, b := r.client(), r.client()
	call(t, a, jute.OK, jute.OpAuth, wire.Auth("digest", "u:p"))
	mine := []jute.ACL{{Perms: 31, ID: jute.ID{Scheme: "auth"}}}
	call(t, a, jute.OK, jute.OpCreate, wire.Create("/mine", nil, mine, 0))
	var p batch
	p.add(jute.OpSetData, wire.SetData("/mine", nil, -1)).add(jute.OpGetData, wire.PathWatch("/mine", false)).
		add(jute.OpAuth, wire.Auth("digest", "u:p")).
		add(jute.OpSetData, wire.SetData("/mine", nil, -1)).add(jute.OpGetData, wire.PathWatch("/mine", false))
	must.OK(t, b.WriteRaw(p.b))
	for i, want := range []jute.ErrCode{jute.NoAuth, jute.NoAuth, jute.OK, jute.OK, jute.OK} {
		f := must.Get(b.Next())(t)
		expect.Equal(t, f.Code, want, "request %d", i+1)
	}
}

func TestFailedAuthIsAnsweredThenClosed(t *testing.T) {
	r := newRig(t, options.Options{})
	a := r.client()
	for _, scheme := range []string{"world", "auth", "super", "sasl", "x509", "", "unknown"} {
		c := r.attach(a.Session)
		f := call(t, c, jute.AuthFailed, jute.OpAuth, wire.Auth(scheme, "x:y"))
		expect.Equal(t, f.Zxid, 0, "%q: zxid", scheme)
		must.OK(t, c.Closed())
	}
	for name, body := range map[string]wire.Body{
		"empty": {}, "no credentials": wire.Body{}.Int(0).Str("digest"), "impossible credentials": wire.Body{}.Int(
			0).Str("digest").Int(-2),
	} {
		c := r.attach(a.Session)
		must.OK(t, c.SendXid(-4, jute.OpAuth, body))
		expect.OK(t, c.Closed(), "%s", name)
	}
	r.attach(a.Session)
	expect.Equal(t, r.srv.Metrics().AuthFailed.Load(), 7, "failures counted")
}

// Null credentials are as good as missing: they suffice for the scheme ip only. zkCli sends them for an
// addauth that has only a scheme.
func TestAuthWithoutCredentials(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	null := func(scheme string) wire.Body { return wire.Body{}.Int(0).Str(scheme).Null() }
	call(t, c, jute.OK, jute.OpAuth, null("ip"))
	alive(t, c)
	call(t, c, jute.AuthFailed, jute.OpAuth, null("digest"))
	must.OK(t, c.Closed())
}

func TestSuperUserMayDoEverything(t *testing.T) {
	nobody := []jute.ACL{{Perms: 0, ID: jute.ID{Scheme: "world", ID: "anyone"}}}
	r := newRig(t, options.Options{Super: identity.Super{Digest: acl.DigestID("root:secret").ID}})
	c := r.client()
	call(t, c, jute.OK, jute.OpCreate, wire.Create("/n", nil, nobody, 0))
	call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", "other:secret"))
	call(t, c, jute.NoAuth, jute.OpGetData, wire.PathWatch("/n", false))
	call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", "root:secret"))
	call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/n", false))
	call(t, c, jute.OK, jute.OpSetData, wire.SetData("/n", nil, -1))
	expect.That(t, who(t, c)[identity.SuperID], "whoAmI does not tell")
}

func TestSkipACLLetsEverybodyDoEverything(t *testing.T) {
	nobody := []jute.ACL{{Perms: 0, ID: jute.ID{Scheme: "world", ID: "anyone"}}}
	r := newRig(t, options.Options{SkipACL: true})
	c := r.client()
	call(t, c, jute.OK, jute.OpCreate, wire.Create("/n", nil, nobody, 0))
	call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/n", true))
	call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", "u:p"))
	must.OK(t, c.SendXid(9, jute.OpSetData, wire.SetData("/n", nil, -1)))
	wantKinds(t, c, "NodeDataChanged /n", 9)
}

// The server sends no event of a node that the client may not read. The event still uses up a one-time watch;
// a standing watch remains.
func TestEventOfAnUnreadableNodeIsWithheld(t *testing.T) {
	r := newRig(t, options.Options{})
	a, b := r.client(), r.client()
	call(t, a, jute.OK, jute.OpAuth, wire.Auth("digest", "u:p"))
	mine := []jute.ACL{{Perms: 31, ID: jute.ID{Scheme: "auth"}}}
	call(t, a, jute.OK, jute.OpCreate, wire.Create("/mine", nil, mine, 0))
	call(t, b, jute.OK, jute.OpExists, wire.PathWatch("/mine", true))
	call(t, b, jute.OK, jute.OpAddWatch, wire.PathInt("/", 1))
	call(t, a, jute.OK, jute.OpSetData, wire.SetData("/mine", nil, -1))
	call(t, b, jute.OK, jute.OpAuth, wire.Auth("digest", "u:p"))
	call(t, a, jute.OK, jute.OpSetData, wire.SetData("/mine", nil, -1))
	wantKinds(t, b, "NodeDataChanged /mine") // the standing watch reports the second change
	call(t, a, jute.OK, jute.OpDelete, wire.PathVersion("/mine", -1))
	wantKinds(t, b, "NodeDeleted /mine")
	expect.Equal(t, len(b.Events), 0, "events before: %v", b.Events)
}

// The scheme "ensemble" answers as ZooKeeper's own provider does. It proves no identity. A client that gives
// no name passes. If the options list no names, every name passes.
func TestEnsembleNames(t *testing.T) {
	for _, names := range [][]string{nil, {"one", "two"}} {
		r := newRig(t, options.Options{EnsembleNames: names})
		for name, fits := range map[string]bool{"": true, "one": true, "two": true, " one": false, "one,two": false,
			"three": false} {
			c := r.client()
			if !fits && names != nil {
				call(t, c, jute.AuthFailed, jute.OpAuth, wire.Auth("ensemble", name))
				must.OK(t, c.Closed())
				continue
			}
			call(t, c, jute.OK, jute.OpAuth, wire.Auth("ensemble", name))
			ids := must.Get(c.WhoAmI())(t)
			if expect.Equal(t, len(ids), 1, "with the name %q the client is %v: len(ids)", name, ids) {
				expect.Equal(t, ids[0].Scheme, "ip",
					"with the name %q the client is %v: ids[0].Scheme", name, ids)
			}
		}
	}
}

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

// saslStep sends one token and returns the server's token.
func saslStep(t *testing.T, c *wire.Conn, token []byte) (jute.ErrCode, []byte) {
	t.Helper()
	f := must.Get(c.Call(jute.OpSASL, wire.Body{}.Buf(token)))(t)
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
	r := newRig(t, options.Options{SASL: &sasl.Mechanisms{Users: saslUsers},
		Super: identity.Super{SASL: "root"}})
	a, other := r.client(), r.client()
	must.Equal(t, authenticate(t, a, "bob", "secret"), jute.OK)
	bob := jute.ID{Scheme: "sasl", ID: "bob"}
	ids := who(t, a)
	if expect.Equal(t, len(ids), 2, "identities %v: len(ids)", ids) {
		expect.That(t, ids[bob], "identities %v: want ids[bob]", ids)
	}
	call(t, a, jute.OK, jute.OpCreate, wire.Create("/bobs", []byte("x"), []jute.ACL{{Perms: 31, ID: bob}}, 0))
	call(t, other, jute.NoAuth, jute.OpGetData, wire.PathWatch("/bobs", false))
	// The client authenticates a second time on one connection, as another user.
	must.Equal(t, authenticate(t, a, "root", "top"), jute.OK)
	ids = who(t, a)
	expect.That(t, ids[bob], "identities %v: want ids[bob]", ids)
	expect.That(t, ids[identity.SuperID], "identities %v: want ids[identity.SuperID]", ids)
	// The server answers that the authentication failed and closes the connection. The session lives on.
	session := other.Session
	expect.Equal(t, authenticate(t, other, "bob", "wrong"), jute.AuthFailed, "a wrong password")
	must.OK(t, other.Closed())
	b := r.attach(session)
	expect.Equal(t, authenticate(t, b, "eve", ""), jute.AuthFailed, "an unknown user")
}

// Without SASL users, the server answers a limited number of SASL tokens, as ZooKeeper does.
func TestSASLWithoutUsers(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	// Authentications of other schemes do not count toward the limit of SASL tokens.
	for _, credentials := range []string{"u1:p1", "u2:p2", "u3:p3", "u4:p4"} {
		call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", credentials))
	}
	for range saslEmpty {
		code, answer := saslStep(t, c, nil)
		must.Equal(t, code, jute.OK, "exit code")
		must.That(t, answer == nil, "%v %q", code, answer)
	}
	code, _ := saslStep(t, c, nil)
	expect.Equal(t, code, jute.AuthFailed, "one round too many")
	must.OK(t, c.Closed())
}

func TestRequireAuth(t *testing.T) {
	r := newRig(t, options.Options{SASL: &sasl.Mechanisms{Users: saslUsers},
		RequireAuth: []string{"sasl", "digest"}})
	for op, body := range map[jute.OpCode]wire.Body{
		jute.OpGetData: wire.PathWatch("/", false), jute.OpSetData: wire.SetData("/", nil, -1), jute.OpWhoAmI: {},
		jute.OpCreate: wire.Create("/x", nil, jute.WorldAnyone, 0),
		// This setWatches is longer than a frame may be. The server accepts it, because it handles a
		// setWatches while it arrives.
		jute.OpSetWatches: wire.SetWatches(0, nil, nil, slices.Repeat([]string{"/zookeeper"}, 100_000)),
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
