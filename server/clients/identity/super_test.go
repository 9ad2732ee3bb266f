package identity

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/tree/acl"
)

// A value that is missing in the options or in a client's proof matches nothing.
func TestSuperUser(t *testing.T) {
	digest := func(credentials string) string { return acl.DigestID(credentials).ID }
	for name, x := range map[string]struct {
		super  Super
		scheme string
		proved string
		want   bool
	}{
		"digest":                      {Super{Digest: digest("root:secret")}, "digest", digest("root:secret"), true},
		"digest, colon in password":   {Super{Digest: digest("root:a:b")}, "digest", digest("root:a:b"), true},
		"digest, doubled password":    {Super{Digest: digest("root:secret")}, "digest", digest("root:secret:secret"), false},
		"digest, another password":    {Super{Digest: digest("root:secret")}, "digest", digest("root:other"), false},
		"digest, another user":        {Super{Digest: digest("root:secret")}, "digest", digest("other:secret"), false},
		"digest, empty password":      {Super{Digest: digest("root:")}, "digest", digest("root:"), false},
		"digest, missing password":    {Super{Digest: digest("root")}, "digest", digest("root"), false},
		"digest, empty user":          {Super{Digest: digest(":secret")}, "digest", digest(":secret"), false},
		"digest, colon alone":         {Super{Digest: digest(":")}, "digest", digest(":"), false},
		"digest, empty credentials":   {Super{Digest: digest("")}, "digest", digest(""), false},
		"digest, nothing proved":      {Super{Digest: digest("root:secret")}, "digest", "", false},
		"digest, nothing set":         {Super{}, "digest", digest("root:secret"), false},
		"digest, nothing at all":      {Super{}, "digest", "", false},
		"sasl":                        {Super{SASL: "root"}, "sasl", "root", true},
		"sasl, doubled user":          {Super{SASL: "root"}, "sasl", "rootroot", false},
		"sasl, part of the user":      {Super{SASL: "root"}, "sasl", "roo", false},
		"sasl, nothing proved":        {Super{SASL: "root"}, "sasl", "", false},
		"sasl, nothing set":           {Super{}, "sasl", "root", false},
		"sasl, nothing at all":        {Super{}, "sasl", "", false},
		"x509":                        {Super{X509: "CN=root"}, "x509", "CN=root", true},
		"x509, doubled subject":       {Super{X509: "CN=root"}, "x509", "CN=root,CN=root", false},
		"x509, nothing proved":        {Super{X509: "CN=root"}, "x509", "", false},
		"x509, nothing set":           {Super{}, "x509", "CN=root", false},
		"x509, nothing at all":        {Super{}, "x509", "", false},
		"another scheme's super user": {Super{SASL: "CN=root", Digest: "CN=root"}, "x509", "CN=root", false},
		"ip":                          {Super{SASL: "1", X509: "1", Digest: "1"}, "ip", "1", false},
		"super":                       {Super{}, "super", "", false},
		"no scheme":                   {Super{}, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := x.super.Is(jute.ID{Scheme: x.scheme, ID: x.proved})
			expect.Equal(t, got, x.want, "%+v is the super user %+v", x.proved, x.super)
		})
	}
}
