//go:build kerberos

package launch

const buildTags = "kerberos"
