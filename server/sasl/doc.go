// Package sasl is the server's side of the SASL mechanisms that ZooKeeper's clients use. DIGEST-MD5 (RFC
// 2831) is in this package, and GSSAPI is in package kerberos.
//
// A [Negotiation] is one negotiation on one connection. It answers the client's tokens, and names the user
// once the client has proved its identity. [Users] are the names and passwords for DIGEST-MD5. They are read
// from a file in zlockd's format, or from the Server section of a JAAS file. That section may also name a
// keytab for Kerberos.
//
// The package uses neither connections nor clocks: callers pass the client's tokens and the time, and get the
// server's tokens.
package sasl
