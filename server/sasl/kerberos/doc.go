// Package kerberos is the server's side of the SASL mechanism GSSAPI (RFC 4752)
// with Kerberos (RFC 4120, RFC 4121): it accepts tickets, and asks no KDC.
//
// A [Service] is this server's identity: a principal and its keys from a keytab. An [Exchange] is
// one negotiation on one connection. [Names] turn the principal that a client has proved into an
// identity of ZooKeeper's.
//
// The ciphers are the library's (gokrb5/crypto), AES only. This package reads the messages itself, with
// encoding/asn1: they come from unknown clients, and it needs only a few fields.
//
// It is a module of its own, with the program zlockd-kerberos, so that other programs of zlockd depend on
// no library for Kerberos.
package kerberos
