// Package sasl is the server's side of the SASL mechanisms that ZooKeeper's
// clients speak: DIGEST-MD5 (RFC 2831) here, and GSSAPI in package kerberos.
//
// A [Negotiation] is one negotiation on one connection: it answers the client's tokens and, once the client
// has proved its identity, names the user. [Users] are the names and passwords of DIGEST-MD5, read from a
// file in zlockd's format or from the Server section of a JAAS file. That section may also name a keytab for
// Kerberos.
//
// The package uses neither connections nor clocks: callers pass tokens and the time, and get tokens.
package sasl
