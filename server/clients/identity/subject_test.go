package identity

import (
	"encoding/asn1"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// part is an attribute of a subject. If `joined` is true, the attribute belongs to the same set as the part
// before it.
type part struct {
	oid    string
	tag    int
	value  string
	joined bool
}

// oids are types of attributes; some have a keyword.
var oids = map[string]asn1.ObjectIdentifier{
	"CN": {2, 5, 4, 3}, "C": {2, 5, 4, 6}, "L": {2, 5, 4, 7}, "ST": {2, 5, 4, 8}, "STREET": {2, 5, 4, 9},
	"O": {2, 5, 4, 10}, "OU": {2, 5, 4, 11}, "UID": {0, 9, 2342, 19200300, 100, 1, 1},
	"DC": {0, 9, 2342, 19200300, 100, 1, 25}, "email": {1, 2, 840, 113549, 1, 9, 1}, "SN": {2, 5, 4, 4},
	"serial": {2, 5, 4, 5}, "T": {2, 5, 4, 12}, "GN": {2, 5, 4, 42},
}

// subject returns the DER encoding of a subject.
func subject(t testing.TB, parts ...part) []byte {
	t.Helper()
	var sets []attributeSET
	for _, p := range parts {
		raw := must.Get(asn1.Marshal(asn1.RawValue{Tag: p.tag, Bytes: []byte(p.value)}))(t)
		a := attribute{oids[p.oid], asn1.RawValue{FullBytes: raw}}
		if n := len(sets); p.joined && n > 0 {
			sets[n-1] = append(sets[n-1], a)
		} else {
			sets = append(sets, attributeSET{a})
		}
	}
	return must.Get(asn1.Marshal(sets))(t)
}

// subjects have the texts that Java gives, as TestSubjectsAreJavas checks. Only bytes that are not UTF-8 have
// another text in Java.
var subjects = []struct {
	want  string
	parts []part
}{
	{"", nil},
	{"CN=alice", []part{{"CN", 12, "alice", false}}},
	{"CN=alice,OU=Eng,O=Acme,C=US", []part{{"C", 19, "US", false}, {"O", 12, "Acme", false}, {"OU", 12, "Eng", false},
		{"CN", 12, "alice", false}}},
	{"CN=admin,CN=eve,O=example", []part{{"O", 12, "example", false}, {"CN", 12, "eve", false},
		{"CN", 12, "admin", false}}},
	{"CN=John,CN=Users,DC=example,DC=com", []part{{"DC", 22, "com", false}, {"DC", 22, "example", false},
		{"CN", 12, "Users", false}, {"CN", 12, "John", false}}},
	{"OU=Ops,OU=People", []part{{"OU", 12, "People", false}, {"OU", 12, "Ops", false}}},
	{"OU=Ops+OU=People", []part{{"OU", 12, "People", false}, {"OU", 12, "Ops", true}}},
	{"CN=Bob+UID=bob,STREET=Main 1,L=X,ST=Y", []part{{"ST", 12, "Y", false}, {"L", 12, "X", false},
		{"STREET", 12, "Main 1", false}, {"UID", 12, "bob", false}, {"CN", 12, "Bob", true}}},
	{"1.2.840.113549.1.9.1=#160762406578616d70,CN=b", []part{{"CN", 12, "b", false}, {"email", 22, "b@examp", false}}},
	{"2.5.4.12=#0c026472", []part{{"T", 12, "dr", false}}},
	{`CN=a\,b\=c\+d\<e\>f\#g\;h\"i\\j/k`, []part{{"CN", 12, `a,b=c+d<e>f#g;h"i\j/k`, false}}},
	{`CN=\ \ a b\ `, []part{{"CN", 12, "  a b ", false}}},
	{`CN=\ \ `, []part{{"CN", 12, "  ", false}}},
	{"CN=\\\ra\rb\\\r", []part{{"CN", 12, "\ra\rb\r", false}}},
	{"CN=", []part{{"CN", 12, "", false}}},
	{`CN=a\00b`, []part{{"CN", 12, "a\x00b", false}}},
	{"CN=Jürgen\t中\U0001f512\n", []part{{"CN", 12, "Jürgen\t中\U0001f512\n", false}}},
	{`CN=\00A\00B`, []part{{"CN", 30, "\x00A\x00B", false}}},
	{"CN=#020105", []part{{"CN", 2, "\x05", false}}},
	{"CN=#1c0400000041", []part{{"CN", 28, "\x00\x00\x00A", false}}},
}

func TestSubject(t *testing.T) {
	for _, x := range subjects {
		t.Run(x.want, func(t *testing.T) {
			expect.Equal(t, must.Get(Subject(subject(t, x.parts...)))(t), x.want)
		})
	}
}

// Java writes U+FFFD for each of these strings. This server writes a different text for each of them.
func TestSubjectInAnotherEncoding(t *testing.T) {
	for value, want := range map[string]string{"\xe9": "CN=#1401e9", "\xe8": "CN=#1401e8"} {
		expect.Equal(t, must.Get(Subject(subject(t, part{"CN", 20, value, false})))(t), want)
	}
}

func TestSubjectThatIsNotOne(t *testing.T) {
	good := subject(t, part{"CN", 12, "alice", false})
	for name, der := range map[string][]byte{"nothing": nil, "cut": good[:len(good)-1],
		"followed": append(good[:len(good):len(good)], 0), "a string": {12, 1, 'a'}} {
		_, err := Subject(der)
		expect.That(t, err != nil, "%s is taken", name)
	}
}

// madeUp returns a subject of random attributes, whose bytes are UTF-8.
func madeUp(t testing.TB, r *rand.Rand) []byte {
	var parts []part
	types := []string{"CN", "C", "L", "ST", "STREET", "O", "OU", "UID", "DC", "email", "SN", "serial", "T", "GN"}
	runes := []rune(" \r\t\n\x00,=+<>#;\"\\/'()abcXYZ019.:-_@ü中\U0001f512\u202e\u0301")
	for range r.IntN(6) {
		var value strings.Builder
		for range r.IntN(9) {
			value.WriteRune(runes[r.IntN(len(runes))])
		}
		tags := []int{asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String, asn1.TagT61String,
			asn1.TagGeneralString, asn1.TagBMPString, asn1.TagOctetString}
		parts = append(parts, part{types[r.IntN(len(types))], tags[r.IntN(len(tags))], value.String(), r.IntN(4) == 0})
	}
	return subject(t, parts...)
}

// Two subjects have different texts, unless they differ only in the types of their strings.
func TestSubjectsDoNotCollide(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[string]string{}
	for range 20_000 {
		der := madeUp(t, r)
		plain := string(plainStrings(t, der))
		text := must.Get(Subject(der))(t)
		was, known := seen[text]
		expect.That(t, !known || was == plain, "%x and %x are both %q", was, plain, text)
		seen[text] = plain
	}
}

// plainStrings returns the subject with the type UTF8String for all strings that are written as text.
func plainStrings(t testing.TB, der []byte) []byte {
	var sets []attributeSET
	must.Get(asn1.Unmarshal(der, &sets))(t)
	for _, set := range sets {
		for i := range set {
			if a := &set[i]; keywords[a.Type.String()] != "" && a.isText() {
				a.Value.FullBytes[0] = asn1.TagUTF8String
			}
		}
	}
	return must.Get(asn1.Marshal(sets))(t)
}
