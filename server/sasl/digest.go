package sasl

import (
	"crypto/hmac"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// ZooKeeper's names for its service and its realm. Clients put them into the hash, so they are fixed. The
// realm does not depend on the server's host.
const (
	Realm   = "zk-sasl-md5"
	Service = "zookeeper"
)

// nonceBytes is how many random bytes a nonce has. Each exchange has a nonce of its own, so an answer that
// was overheard is worthless in another exchange.
const nonceBytes = 24

// digest is one negotiation of DIGEST-MD5; see Users.begin.
type digest struct {
	users Users
	nonce string
	next  func([]byte) ([]byte, error) // handles the client's next token; nil: the negotiation is over
	user  string                       // set when the client has proved that it knows this user's password
}

// Answer implements Negotiation.
func (e *digest) Answer(token []byte, _ time.Time) ([]byte, error) {
	next := e.next
	if e.next = nil; next == nil {
		return nil, fmt.Errorf("%w: a token came after the end of the exchange", errProtocol)
	}
	return next(token)
}

// challenge answers the client's first token, which is empty.
func (e *digest) challenge(token []byte) ([]byte, error) {
	if len(token) > 0 {
		return nil, fmt.Errorf("%w: its first token has %d bytes instead of none", errProtocol, len(token))
	}
	e.next = e.check
	return fmt.Appendf(nil, `realm="%s",nonce="%s",charset=utf-8,algorithm=md5-sess,qop="auth"`, Realm,
		e.nonce), nil
}

// User implements Negotiation.
func (e *digest) User() (user, principal string, done bool) { return e.user, "", e.user != "" }

// check verifies the client's answer. Its own answer proves that the server knows the password, too.
func (e *digest) check(token []byte) ([]byte, error) {
	d, err := parseDirectives(token)
	if err != nil {
		return nil, err
	}
	service, _, _ := strings.Cut(d["digest-uri"], "/")
	switch {
	case d["nonce"] != e.nonce:
		return nil, fmt.Errorf("%w: it answers another challenge", errProtocol)
	case d["nc"] != "00000001":
		return nil, fmt.Errorf("%w: the nonce was used before", errProtocol)
	case d["cnonce"] == "" || d["username"] == "":
		return nil, fmt.Errorf("%w: the user or the client's nonce is missing", errProtocol)
	case d["realm"] != Realm:
		return nil, fmt.Errorf("%w: realm %.64q is not %q", errProtocol, d["realm"], Realm)
	case !strings.EqualFold(service, Service):
		return nil, fmt.Errorf("%w: service %.64q is not %q", errProtocol, service, Service)
	case d["qop"] != "" && d["qop"] != "auth":
		return nil, fmt.Errorf("%w: protection %.64q was not offered", errProtocol, d["qop"])
	}
	user := d["username"]
	if authzid := d["authzid"]; authzid != "" && authzid != user {
		return nil, fmt.Errorf("%w: %.64q may not act as %.64q", errRefused, user, authzid)
	}
	password, known := e.users[user]
	// Try both forms even for an unknown user, so that the time does not tell which users exist.
	for _, latin1 := range []bool{false, true} {
		key := sessionKey(user, password, d, latin1)
		want := proof(key, "AUTHENTICATE:"+d["digest-uri"], d)
		if hmac.Equal([]byte(want), []byte(d["response"])) && known {
			e.user = user
			return []byte("rspauth=" + proof(key, ":"+d["digest-uri"], d)), nil
		}
	}
	return nil, fmt.Errorf("%w: user %.64q", errRefused, user)
}

// sessionKey is H(A1) in RFC 2831. Clients that follow the RFC hash the name and the password in ISO 8859-1
// if all characters exist there; other clients hash them in UTF-8.
func sessionKey(user, password string, d map[string]string, latin1 bool) string {
	secret := user + ":" + d["realm"] + ":" + password
	if latin1 {
		secret = toLatin1(secret)
	}
	sum := md5.Sum([]byte(secret))
	a1 := string(sum[:]) + ":" + d["nonce"] + ":" + d["cnonce"]
	if d["authzid"] != "" {
		a1 += ":" + d["authzid"]
	}
	return hexSum(a1)
}

// proof returns the value `response` of RFC 2831. a2 is A2 in the RFC; it differs for client and server.
func proof(key, a2 string, d map[string]string) string {
	return hexSum(key + ":" + d["nonce"] + ":" + d["nc"] + ":" + d["cnonce"] + ":auth:" + hexSum(a2))
}

func hexSum(s string) string {
	sum := md5.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

// toLatin1 converts s to ISO 8859-1 if every character fits, and otherwise returns s.
func toLatin1(s string) string {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xff {
			return s
		}
		b = append(b, byte(r))
	}
	return string(b)
}
