package kerberos

import (
	"errors"
	"fmt"
	"io"

	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/crypto/etype"
)

// Key usages of RFC 4120 (7.5.1) and RFC 4121 (2).
const (
	usageTicket        = 2
	usageAuthenticator = 11
	usageAPRep         = 12
	usageAcceptorSeal  = 22
	usageInitiatorSeal = 24
)

// suite is an encryption type that the server accepts. DES and RC4 are not among them: they are broken, and
// KDCs do not use them by default.
type suite struct {
	name     string
	keyBytes int
	etype    etype.EType
}

var suites = map[int32]suite{
	17: {"aes128-cts-hmac-sha1-96", 16, crypto.Aes128CtsHmacSha96{}},
	18: {"aes256-cts-hmac-sha1-96", 32, crypto.Aes256CtsHmacSha96{}},
	19: {"aes128-cts-hmac-sha256-128", 16, crypto.Aes128CtsHmacSha256128{}},
	20: {"aes256-cts-hmac-sha384-192", 32, crypto.Aes256CtsHmacSha384192{}},
}

var errIntegrity = errors.New("it was made with another key, or changed")

func (k sessionKey) suite() (suite, error) {
	s, ok := suites[k.EType]
	switch {
	case !ok:
		return s, fmt.Errorf("encryption type %d is not supported: want AES, one of the types 17 to 20",
			k.EType)
	case len(k.Value) != s.keyBytes:
		return s, fmt.Errorf("a key of %s has %d bytes, not %d", s.name, s.keyBytes, len(k.Value))
	}
	return s, nil
}

// open() decrypts e, and checks that it was encrypted with k for this usage.
func (k sessionKey) open(e encrypted, usage uint32) ([]byte, error) {
	s, err := k.suite()
	if err != nil {
		return nil, err
	}
	// Check the length here, because the library does not: e must be longer than its random part and its
	// checksum.
	if e.EType != k.EType || len(e.Cipher) <= s.etype.GetConfounderByteSize()+s.etype.GetHMACBitLength()/8 {
		return nil, errIntegrity
	}
	plain, err := s.etype.DecryptMessage(k.Value, e.Cipher, usage)
	if err != nil {
		return nil, errIntegrity
	}
	return plain, nil
}

func (k sessionKey) seal(plain []byte, usage uint32) (encrypted, error) {
	s, err := k.suite()
	if err != nil {
		return encrypted{}, err
	}
	_, cipher, err := s.etype.EncryptMessage(k.Value, plain, usage)
	return encrypted{EType: k.EType, Cipher: cipher}, err
}

// sum() returns the keyed checksum of b.
func (k sessionKey) sum(b []byte, usage uint32) ([]byte, error) {
	s, err := k.suite()
	if err != nil {
		return nil, err
	}
	return s.etype.GetChecksumHash(k.Value, b, usage)
}

// fresh() makes another key of the same type.
func (k sessionKey) fresh(random io.Reader) (sessionKey, error) {
	fresh := sessionKey{EType: k.EType, Value: make([]byte, len(k.Value))}
	_, err := io.ReadFull(random, fresh.Value)
	return fresh, err
}
