package kerberos

import (
	"bytes"
	"crypto/rand"
	"encoding/asn1"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var (
	now    = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	server = Principal{[]string{"zookeeper", "host"}, "ZK.TEST"}
	alice  = Principal{[]string{"alice"}, "ZK.TEST"}
)

// newKey makes a random key of the encryption type `etype`.
func newKey(etype int32) sessionKey {
	k := sessionKey{EType: etype, Value: make([]byte, suites[etype].keyBytes)}
	rand.Read(k.Value)
	return k
}

// marshalKeytab returns a keytab as kadmin writes it to a file.
func marshalKeytab(k keytab) []byte {
	counted := func(b []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
	}
	file := []byte{5, 2}
	for _, e := range k {
		b := binary.BigEndian.AppendUint16(nil, uint16(len(e.principal.Parts)))
		b = counted(b, e.principal.Realm)
		for _, p := range e.principal.Parts {
			b = counted(b, p)
		}
		b = append(b, 0, 0, 0, 1, 0, 0, 0, 0, byte(e.version))
		b = binary.BigEndian.AppendUint16(b, uint16(e.key.EType))
		b = counted(b, string(e.key.Value))
		b = binary.BigEndian.AppendUint32(b, e.version)
		file = append(binary.BigEndian.AppendUint32(file, uint32(len(b))), b...)
	}
	return file
}

// newService starts a service with a keytab of its own, and returns the path of the keytab.
func newService(t testing.TB, names Names, k keytab) (s *Service, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "keytab")
	must.OK(t, os.WriteFile(file, marshalKeytab(k), 0o600))
	s, err := New(Options{Keytab: file, Names: names, Logger: slog.New(slog.DiscardHandler)})
	must.OK(t, err)
	return s, file
}

// testClient is a client together with its KDC. A test can change each part of its messages before they are
// encrypted.
type testClient struct {
	serverKey, key sessionKey // the server's key, and the ticket's session key
	req            apReq
	ticket         ticket
	secret         ticketSecret
	auth           authenticator
	mutual         bool

	context context // the client's state of the exchange
}

func rawString(s string) asn1.RawValue {
	return asn1.RawValue{Tag: asn1.TagGeneralString, Bytes: []byte(s)}
}

func rawRealm(s string) asn1.RawValue {
	b, err := asn1.Marshal(rawString(s))
	if err != nil {
		panic(err)
	}
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 1, IsCompound: true, Bytes: b}
}

func rawName(p Principal) name {
	n := name{Type: 1}
	for _, part := range p.Parts {
		n.Parts = append(n.Parts, rawString(part))
	}
	return n
}

// realm2 returns a realm with the tag 2.
func realm2(s string) asn1.RawValue {
	raw := rawRealm(s)
	raw.Tag = 2
	return raw
}

func newClient(serverKey sessionKey, version int64, mutual bool) *testClient {
	key := newKey(serverKey.EType)
	sum := binary.LittleEndian.AppendUint32(nil, 16)
	sum = append(sum, make([]byte, 16)...)
	flags := uint32(0)
	if mutual {
		flags = flagMutual
	}
	sum = binary.LittleEndian.AppendUint32(sum, flags)
	return &testClient{
		serverKey: serverKey, key: key, mutual: mutual,
		req: apReq{Version: 5, Type: typeAPReq, Options: bits()},
		ticket: ticket{Version: 5, Realm: rawRealm(server.Realm), Server: rawName(server), Secret: encrypted{
			KVNO: version}},
		secret: ticketSecret{Flags: bits(), Key: key, Realm: realm2(alice.Realm), Client: rawName(alice),
			Transited: transited{Type: 1, Realms: []byte{}}, SignedInAt: now.Add(-time.Hour),
			Start: now.Add(-time.Minute), End: now.Add(time.Hour)},
		auth: authenticator{Version: 5, Realm: rawRealm(alice.Realm), Client: rawName(alice), Checksum: checksum{
			checksumGSS, sum},
			Micros: 7, Time: now, Key: newKey(serverKey.EType), Sequence: 77},
	}
}

func bits(set ...int) asn1.BitString {
	b := asn1.BitString{Bytes: make([]byte, 4), BitLength: 32}
	for _, i := range set {
		b.Bytes[i/8] |= 0x80 >> (i % 8)
	}
	return b
}

func sure[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// hello() returns the client's first token.
func (c *testClient) hello() []byte {
	version := c.ticket.Secret.KVNO
	c.ticket.Secret = sure(c.serverKey.seal(sure(asn1.MarshalWithParams(c.secret, application(tagTicketSecret))),
		usageTicket))
	c.ticket.Secret.KVNO = version
	t := sure(asn1.MarshalWithParams(c.ticket, application(tagTicket)))
	c.req.Ticket = asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 3, IsCompound: true, Bytes: t}
	c.req.Authenticator = sure(c.key.seal(sure(asn1.MarshalWithParams(c.auth, application(tagAuthenticator))),
		usageAuthenticator))
	token := sure(frame(sure(asn1.MarshalWithParams(c.req, application(tagAPReq)))))
	// frame() marks the token as an answer; mark it as a request.
	at := bytes.Index(token, append(bytes.Clone(oid), tokenAPRep...)) + len(oid)
	copy(token[at:], tokenAPReq)
	c.context = context{key: c.key, sequence: c.auth.Sequence}
	if len(c.auth.Key.Value) > 0 {
		c.context.key = c.auth.Key
	}
	return token
}

// readAnswer checks the server's proof and takes its key.
func (c *testClient) readAnswer(t *testing.T, answer []byte) {
	t.Helper()
	var outer asn1.RawValue
	must.Get(asn1.Unmarshal(answer, &outer))(t)
	message, ok := bytes.CutPrefix(outer.Bytes, append(bytes.Clone(oid), tokenAPRep...))
	must.That(t, ok, "no AP-REP: %x", answer)
	var rep apRep
	must.OK(t, decode(message, &rep, tagAPRep))
	plain := must.Get(c.key.open(rep.Secret, usageAPRep))(t)
	var secret apRepSecret
	must.OK(t, decode(plain, &secret, tagAPRepSecret))
	expect.That(t, secret.Time.Equal(c.auth.Time), "it answers %v, %d", secret.Time, secret.Micros)
	expect.Equal(t, secret.Micros, c.auth.Micros, "microseconds of the answer")
	c.context.key, c.context.subkeyFlag = secret.Key, wrapAcceptorSubkey
}

// choice() returns the client's last token.
func (c *testClient) choice(text string) []byte {
	return mirror(c.context.key, c.context.subkeyFlag, text)
}

// mirror() wraps a text as a client does.
func mirror(key sessionKey, flags byte, text string) []byte {
	head := make([]byte, wrapHeader)
	head[0], head[1], head[2], head[3] = 5, 4, flags, 0xff
	sum := sure(key.sum(append([]byte(text), head...), usageInitiatorSeal))
	binary.BigEndian.PutUint16(head[4:], uint16(len(sum)))
	return append(append(head, text...), sum...)
}

// readOffer checks what the server offers.
func (c *testClient) readOffer(t *testing.T, token []byte) {
	t.Helper()
	must.That(t, len(token) >= wrapHeader+4, "offer %x", token)
	must.Equal(t, token[2], wrapFromAcceptor|c.context.subkeyFlag, "flags of the offer")
	head, text, sum := bytes.Clone(token[:wrapHeader]), token[wrapHeader:wrapHeader+4], token[wrapHeader+4:]
	clear(head[4:8])
	if want := sure(c.context.key.sum(append(bytes.Clone(text), head...), usageAcceptorSeal)); !bytes.Equal(sum,
		want) {
		t.Errorf("checksum of the offer %x, want %x", sum, want)
	}
	if !c.mutual && binary.BigEndian.Uint64(head[8:]) != uint64(c.auth.Sequence) {
		t.Errorf("number %x of the offer is not the client's", head[8:])
	}
	expect.List(t, text, []byte{1, 0, 0, 0}, "it offers")
}

// signIn runs a whole exchange, and returns the client's user.
func (c *testClient) signIn(t *testing.T, s *Service) (string, error) {
	t.Helper()
	e := s.begin(rand.Reader)
	answer, err := e.Answer(c.hello(), now)
	if err != nil {
		return "", err
	}
	if c.mutual {
		c.readAnswer(t, answer)
		if answer, err = e.Answer([]byte{}, now); err != nil {
			return "", err
		}
	}
	c.readOffer(t, answer)
	if _, _, done := e.User(); done {
		t.Error("done before the client has chosen")
	}
	last, err := e.Answer(c.choice("\x01\x00\x00\x00somebody else"), now)
	if err != nil {
		return "", err
	}
	user, _, done := e.User()
	expect.That(t, last == nil && done, "the end: %x, %v", last, done)
	return user, nil
}
