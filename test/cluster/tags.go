//go:build !kerberos

package cluster

// buildTags are the tags of the zlockd that is built for a test: the test's own.
const buildTags = ""
