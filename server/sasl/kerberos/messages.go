package kerberos

import (
	"encoding/asn1"
	"errors"
	"fmt"
	"time"
)

// The messages of RFC 4120, with only the fields that a service needs. encoding/asn1 skips elements that
// follow in a sequence.

const (
	protocolVersion = 5
	typeAPReq       = 14
	typeAPRep       = 15
)

// Bits of flags, counted from the left.
const (
	optionUseSessionKey = 1  // a bit of an AP-REQ
	flagInvalid         = 7  // a bit of a ticket
	flagTransitChecked  = 12 // a bit of a ticket
)

type (
	apReq struct {
		Version       int            `asn1:"explicit,tag:0"`
		Type          int            `asn1:"explicit,tag:1"`
		Options       asn1.BitString `asn1:"explicit,tag:2"`
		Ticket        asn1.RawValue  `asn1:"explicit,tag:3"`
		Authenticator encrypted      `asn1:"explicit,tag:4"`
	}
	ticket struct {
		Version int           `asn1:"explicit,tag:0"`
		Realm   asn1.RawValue `asn1:"explicit,tag:1"`
		Server  name          `asn1:"explicit,tag:2"`
		Secret  encrypted     `asn1:"explicit,tag:3"`
	}
	ticketSecret struct {
		Flags      asn1.BitString `asn1:"explicit,tag:0"`
		Key        sessionKey     `asn1:"explicit,tag:1"`
		Realm      asn1.RawValue  `asn1:"explicit,tag:2"`
		Client     name           `asn1:"explicit,tag:3"`
		Transited  transited      `asn1:"explicit,tag:4"`
		SignedInAt time.Time      `asn1:"generalized,explicit,tag:5"`
		Start      time.Time      `asn1:"generalized,optional,explicit,tag:6"`
		End        time.Time      `asn1:"generalized,explicit,tag:7"`
	}
	authenticator struct {
		Version  int           `asn1:"explicit,tag:0"`
		Realm    asn1.RawValue `asn1:"explicit,tag:1"`
		Client   name          `asn1:"explicit,tag:2"`
		Checksum checksum      `asn1:"optional,explicit,tag:3"`
		Micros   int           `asn1:"explicit,tag:4"`
		Time     time.Time     `asn1:"generalized,explicit,tag:5"`
		Key      sessionKey    `asn1:"optional,explicit,tag:6"`
		Sequence int64         `asn1:"optional,explicit,tag:7"`
	}
	apRep struct {
		Version int       `asn1:"explicit,tag:0"`
		Type    int       `asn1:"explicit,tag:1"`
		Secret  encrypted `asn1:"explicit,tag:2"`
	}
	apRepSecret struct {
		Time     time.Time  `asn1:"generalized,explicit,tag:0"`
		Micros   int        `asn1:"explicit,tag:1"`
		Key      sessionKey `asn1:"explicit,tag:2"`
		Sequence int64      `asn1:"explicit,tag:3"`
	}
	encrypted struct {
		EType  int32  `asn1:"explicit,tag:0"`
		KVNO   int64  `asn1:"optional,explicit,tag:1"`
		Cipher []byte `asn1:"explicit,tag:2"`
	}
	sessionKey struct {
		EType int32  `asn1:"explicit,tag:0"`
		Value []byte `asn1:"explicit,tag:1"`
	}
	transited struct {
		Type   int32  `asn1:"explicit,tag:0"`
		Realms []byte `asn1:"explicit,tag:1"`
	}
	checksum struct {
		Type  int32  `asn1:"explicit,tag:0"`
		Value []byte `asn1:"explicit,tag:1"`
	}
	// Parts are raw bytes: as strings, encoding/asn1 would read them in ISO 8859-1.
	name struct {
		Type  int32           `asn1:"explicit,tag:0"`
		Parts []asn1.RawValue `asn1:"explicit,tag:1"`
	}
)

// Tags of the application class.
const (
	tagTicket        = 1
	tagAuthenticator = 2
	tagTicketSecret  = 3
	tagAPReq         = 14
	tagAPRep         = 15
	tagAPRepSecret   = 27
)

func application(tag int) string { return fmt.Sprintf("application,explicit,tag:%d", tag) }

// decode() reads one message whose tag is of the application class. Nothing may follow it.
func decode(b []byte, message any, tag int) error {
	rest, err := asn1.UnmarshalWithParams(b, message, application(tag))
	if err == nil && len(rest) > 0 {
		err = errors.New("bytes follow its end")
	}
	return err
}

func generalString(raw asn1.RawValue) (string, error) {
	if raw.Class != asn1.ClassUniversal || raw.Tag != asn1.TagGeneralString || raw.IsCompound {
		return "", errName
	}
	return string(raw.Bytes), nil
}
