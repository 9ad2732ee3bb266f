// Package kerberos is the server's side of the SASL mechanism GSSAPI (RFC 4752) with Kerberos (RFC 4120, RFC
// 4121). It accepts tickets, and calls no KDC.
//
// A [Service] is this server's identity: a principal and its keys from a keytab. An [Exchange] is one
// negotiation on one connection. [Names] turn the principal that a client has proved into an identity of
// ZooKeeper's.
//
// The package uses only AES ciphers, from the library gokrb5/crypto. It parses the messages itself, with
// encoding/asn1, because they come from unknown clients and the package needs only a few fields.
//
// It is a module of its own, with the program zlockd-kerberos, so that zlockd's other programs do not depend
// on a library for Kerberos.
package kerberos
