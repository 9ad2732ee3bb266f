// Package sasl is the server's side of the SASL mechanisms that ZooKeeper's
// clients speak: DIGEST-MD5 (RFC 2831) here, and GSSAPI in package kerberos.
//
// A [Negotiation] is one negotiation on one connection: it answers the client's tokens and, once
// the client has proved its identity, names the user. [Users] are the names and passwords of
// DIGEST-MD5, read from a file of ours or from the Server section of a JAAS file, which may name
// a keytab for Kerberos as well.
//
// The package knows neither connections nor clocks: tokens and the time go in,
// tokens come out.
package sasl
