//go:build kerberos

package kerberos

import (
	"bytes"
	"crypto/rand"
	"encoding/asn1"
	"encoding/hex"
	"testing"
)

// FuzzToken: no token without the hand of a KDC in it admits a client, and no token brings the
// server down.
func FuzzToken(f *testing.F) {
	b, clients := recorded(f)
	for _, c := range clients {
		for _, token := range c[3:] {
			f.Add(must(hex.DecodeString(token)))
		}
	}
	k := must(parseKeytab(b))
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
			if answer, err := e.Answer(token, now); err == nil {
				t.Errorf("answered by %x", answer)
			}
			if who, done := e.User(); done {
				t.Errorf("let in as %s", who)
			}
		}
	})
}

// FuzzInside decodes what only a KDC or a client with a ticket can send, and
// the last token of such a client.
func FuzzInside(f *testing.F) {
	c := newClient(newKey(18), 1, true)
	f.Add(must(asn1.MarshalWithParams(c.secret, application(tagTicketSecret))))
	f.Add(must(asn1.MarshalWithParams(c.auth, application(tagAuthenticator))))
	f.Add(mirror(c.key, 0, "\x01\x00\x00\x00bob"))
	f.Add(mirror(newKey(17), 0, ""))
	f.Fuzz(func(t *testing.T, b []byte) {
		var secret ticketSecret
		if decode(b, &secret, tagTicketSecret) == nil {
			if p, err := secret.check(now); err == nil && p.check() != nil {
				t.Errorf("taken: %v", p)
			}
		}
		req := apReq{Authenticator: must(c.key.seal(b, usageAuthenticator))}
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
		if again, err := parseKeytab(marshalKeytab(k)); err != nil || len(again) != len(k) {
			t.Errorf("%d keys, written and read: %d, %v", len(k), len(again), err)
		}
	})
}

// FuzzRules: whatever an operator writes is refused or can be applied.
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
