// Package acl holds ACLs and decides who may do what.
//
// A [Set] is one distinct ACL, parsed once and shared by all nodes that have it; [Set.Grants] is the one
// permission check of a server. [Fix] turns the ACL that a client sends into the ACL to store. A [Table]
// holds each ACL once and counts the nodes that have it.
//
// The package knows no nodes and no requests. It works only with entries and identities.
package acl
