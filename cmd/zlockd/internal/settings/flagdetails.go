package settings

// Details has texts about some flags that only the manual shows.
var Details = map[string]string{
	"admin-hosts": "All other names get 421 except at /health and /ready, so that no web page can read the " +
		"port by DNS rebinding; addresses, localhost, and the names of this machine and of the members are " +
		"always allowed",
	"peers":            "The servers that form a new cluster; later the members change by zlock member",
	"max-client-cnxns": "0 also lifts the other limits for one address, see docs/limits.md",
	"max-cnxns": "The default uses four fifths of the file descriptors, or half of the memory at 64 KiB " +
		"each, whichever is less",
	"max-sessions": "The server then closes new clients as with --max-cnxns; existing sessions go on. By " +
		"default as many as fit into a quarter of the memory at 2 KiB each",
	"max-address-sessions": "At most 50,000 by default; no limit while --max-client-cnxns is 0",
	"read-only-mode": "Read-only mode begins 2.5 s after the leader is lost. Writes get NOTREADONLY; " +
		"sessions last as " +
		"long as the connection, or go on elsewhere",
	"max-nodes":     "Creates then get THROTTLEDOP; deletes and sessions go on",
	"max-data":      "Larger data and long ACLs then get THROTTLEDOP; deletes, smaller data and sessions go on",
	"enforce-quota": "The leader's setting applies",
	"no-ttl":        "The leader's setting applies",
	"one-layout": "A refused contender gets NOAUTH. The leader's setting applies, once every server has said " +
		"that it runs a release after 0.1.0, see docs/locks.md",
	"disk-reserve": "The leader then answers THROTTLEDOP. It also does so if less than twice the size of " +
		"a snapshot is free",
	"super-digest": "Make the hash by: printf 'super:secret' | openssl dgst -binary -sha1 | openssl base64",
	"sasl-users": "Read at the start; refused if it has passwords and every user can read it. A JAAS file " +
		"may also have keyTab and principal of a Krb5LoginModule",
	"ensemble-names": "Such clients get AUTHFAILED",
	"require-auth":   "Such clients get SESSIONCLOSEDREQUIRESASLAUTH",
}
