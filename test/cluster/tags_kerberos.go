//go:build kerberos

package cluster

const buildTags = "kerberos"
