package server

import (
	"net/http"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree/acl"
)

// The admin port admits the super user by the password, and no other caller, even if options are empty.
func TestWhichCallersAreTheSuperUser(t *testing.T) {
	t.Parallel()
	digest := func(credentials string) string { return acl.DigestID(credentials).ID }
	for name, x := range map[string]struct {
		o    Options
		want string // the header that is admitted
	}{
		"none":                {Options{}, ""},
		"digest":              {Options{SuperDigest: superDigest}, "digest super:test"},
		"empty password":      {Options{SuperDigest: digest("super:")}, ""},
		"missing password":    {Options{SuperDigest: digest("super")}, ""},
		"empty user":          {Options{SuperDigest: digest(":test")}, ""},
		"empty credentials":   {Options{SuperDigest: digest("")}, ""},
		"users of other ways": {Options{X509Super: "super", SASLSuper: "super"}, ""},
	} {
		x.o.AdminAddr = "127.0.0.1:0"
		i, _ := start(t, x.o)
		for _, header := range []string{"", "digest", "digest ", "digest :", "digest super", "digest super:",
			"digest :test", "digest super:test", "digest super:test:test", "digest super:test super:test",
			"basic super:test", "super:test"} {
			t.Run(name+"/"+header, func(t *testing.T) {
				r := must.Get(http.NewRequest("GET", "http://"+i.AdminAddr()+"/commands/snapshot", nil))(t)
				if header != "" {
					r.Header.Set("Authorization", header)
				}
				resp := must.Get(http.DefaultClient.Do(r))(t)
				resp.Body.Close()
				expect.Equal(t, resp.StatusCode == http.StatusOK, header != "" && header == x.want,
					"let in, by status %d", resp.StatusCode)
			})
		}
	}
}
