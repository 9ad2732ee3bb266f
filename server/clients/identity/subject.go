package identity

import (
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"strings"
	"unicode/utf8"
)

// attribute is one part of a subject. Package asn1 reads a slice as a set only if the name of its type ends
// in SET, as attributeSET does.
type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

type attributeSET []attribute

// keywords maps the types of attributes to their names in RFC 2253. Other types are written as numbers.
var keywords = map[string]string{
	"2.5.4.3":                    "CN",
	"2.5.4.6":                    "C",
	"2.5.4.7":                    "L",
	"2.5.4.8":                    "ST",
	"2.5.4.9":                    "STREET",
	"2.5.4.10":                   "O",
	"2.5.4.11":                   "OU",
	"0.9.2342.19200300.100.1.1":  "UID",
	"0.9.2342.19200300.100.1.25": "DC",
}

// Subject returns the text of a certificate's subject, from its DER encoding, as ZooKeeper's ACLs have it:
// all attributes, in order, as in RFC 2253. That is what Java's X500Principal.getName returns. Two subjects
// have the same text only if they are equal.
func Subject(der []byte) (string, error) {
	var sets []attributeSET
	switch rest, err := asn1.Unmarshal(der, &sets); {
	case err != nil:
		return "", err
	case len(rest) > 0:
		return "", errors.New("bytes follow the subject")
	}
	var b strings.Builder
	for i := len(sets) - 1; i >= 0; i-- {
		if i < len(sets)-1 {
			b.WriteByte(',')
		}
		for j, a := range sets[i] {
			if j > 0 {
				b.WriteByte('+')
			}
			a.write(&b)
		}
	}
	return b.String(), nil
}

// write writes the attribute, type and value.
func (a *attribute) write(b *strings.Builder) {
	kind := a.Type.String()
	keyword := keywords[kind]
	if keyword == "" || !a.isText() {
		if keyword == "" {
			keyword = kind
		}
		b.WriteString(keyword + "=#" + hex.EncodeToString(a.Value.FullBytes))
		return
	}
	b.WriteString(keyword + "=")
	writeText(b, string(a.Value.Bytes))
}

// isText reports whether the value is written as text: it has a text type and is UTF-8. Java takes all text
// types for text and writes the same replacement character for every invalid byte. Then different names would
// look alike, so a value that is not UTF-8 does not count as text here.
func (a *attribute) isText() bool {
	switch a.Value.FullBytes[0] {
	case asn1.TagPrintableString, asn1.TagUTF8String, asn1.TagT61String, asn1.TagIA5String,
		asn1.TagGeneralString,
		asn1.TagBMPString:
		return utf8.Valid(a.Value.Bytes)
	}
	return false
}

// writeText writes a value, with special characters escaped.
func writeText(b *strings.Builder, text string) {
	const blank = " \r"
	lead := len(text) - len(strings.TrimLeft(text, blank))
	trail := len(strings.TrimRight(text, blank))
	for i := range len(text) {
		switch c := text[i]; {
		case c == 0:
			b.WriteString(`\00`)
		case i < lead, i >= trail, strings.IndexByte(`,=+<>#;"\`, c) >= 0:
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
}
