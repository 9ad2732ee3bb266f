package kerberos

import (
	"bytes"
	"crypto/hmac"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
)

// maxToken bounds a client's token. The tickets of users with many groups are large, but Windows sends no
// longer tokens than this.
const maxToken = 64 << 10

// oid is Kerberos' object identifier among the mechanisms of GSS-API, 1.2.840.113554.1.2.2.
var oid = []byte{0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02}

// The first two bytes of a message in the frame: what the client sends, and what the server answers.
var (
	tokenAPReq = []byte{1, 0}
	tokenAPRep = []byte{2, 0}
)

var errFrame = errors.New("it is not a token of Kerberos")

// unframe() removes the frame of RFC 2743 (3.1) from the client's first token.
func unframe(token []byte) (message []byte, err error) {
	var outer asn1.RawValue
	rest, err := asn1.Unmarshal(token, &outer)
	if err != nil || len(rest) > 0 || outer.Class != asn1.ClassApplication || outer.Tag != 0 {
		return nil, errFrame
	}
	message, ok := bytes.CutPrefix(outer.Bytes, oid)
	if !ok {
		return nil, fmt.Errorf("%w: it belongs to another mechanism of GSS-API", errFrame)
	}
	if message, ok = bytes.CutPrefix(message, tokenAPReq); !ok {
		return nil, fmt.Errorf("%w: it holds no AP-REQ", errFrame)
	}
	return message, nil
}

// frame() adds the frame of RFC 2743 to the answer.
func frame(message []byte) ([]byte, error) {
	inner := append(append(bytes.Clone(oid), tokenAPRep...), message...)
	return asn1.Marshal(asn1.RawValue{Class: asn1.ClassApplication, Tag: 0, IsCompound: true, Bytes: inner})
}

// A wrap token of RFC 4121 (4.2.6.2): 05 04, flags, FF, two lengths and a number. The text and its checksum
// follow. Tokens are not encrypted: RFC 4752 forbids it here, and they contain no secrets.
const (
	wrapHeader = 16

	wrapFromAcceptor   = 1 << 0
	wrapSealed         = 1 << 1
	wrapAcceptorSubkey = 1 << 2
)

var errWrap = errors.New("the wrapped token does not belong to this exchange")

// wrap() makes a token from the server's text and its checksum.
func (c *context) wrap(text []byte) ([]byte, error) {
	head := make([]byte, wrapHeader, wrapHeader+len(text)+24)
	head[0], head[1], head[2], head[3] = 5, 4, wrapFromAcceptor|c.subkeyFlag, 0xff
	binary.BigEndian.PutUint64(head[8:], uint64(c.sequence))
	c.sequence++
	// The checksum is over a head whose two lengths are zero.
	sum, err := c.key.sum(append(bytes.Clone(text), head...), usageAcceptorSeal)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint16(head[4:], uint16(len(sum)))
	return append(append(head, text...), sum...), nil
}

// unwrap() returns the text of a client's token. The token's number does not matter: the key is for this
// exchange only, and the client sends only one token with it.
func (c *context) unwrap(token []byte) ([]byte, error) {
	if len(token) < wrapHeader || token[0] != 5 || token[1] != 4 || token[3] != 0xff {
		return nil, errWrap
	}
	switch flags := token[2]; {
	case flags&wrapFromAcceptor != 0:
		return nil, fmt.Errorf("%w: it comes from a server", errWrap)
	case flags&wrapSealed != 0:
		return nil, fmt.Errorf("%w: it is sealed", errWrap)
	case flags&wrapAcceptorSubkey != c.subkeyFlag:
		return nil, fmt.Errorf("%w: it is protected by another key", errWrap)
	}
	head, body := bytes.Clone(token[:wrapHeader]), token[wrapHeader:]
	size, turned := int(binary.BigEndian.Uint16(head[4:])), int(binary.BigEndian.Uint16(head[6:]))
	if size > len(body) {
		return nil, errWrap
	}
	if turned %= max(len(body), 1); turned > 0 {
		body = append(bytes.Clone(body[turned:]), body[:turned]...)
	}
	text, sum := body[:len(body)-size], body[len(body)-size:]
	clear(head[4:8])
	want, err := c.key.sum(append(bytes.Clone(text), head...), usageInitiatorSeal)
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(sum, want) {
		return nil, fmt.Errorf("%w: %w", errWrap, errIntegrity)
	}
	return text, nil
}
