// Package kerberos is the server's side of the SASL mechanism GSSAPI (RFC 4752)
// with Kerberos (RFC 4120, RFC 4121): it accepts tickets, and asks no KDC.
//
// A [Service] is who this server is: a principal and its keys from a keytab. An
// [Exchange] is one negotiation on one connection. [Names] make an identity of
// ZooKeeper's of the principal that a client has proved to be.
//
// The ciphers are the library's (gokrb5/crypto), AES only. What they protect is
// read here, by encoding/asn1: it comes from strangers, and little of it counts.
//
// Only a build with the tag `kerberos` holds it (make build TAGS=kerberos).
package kerberos
