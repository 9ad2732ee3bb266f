package settings

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// If a flag or key that names the super user is missing or empty, there is no super user. If it is repeated,
// its last value counts.
func TestSuperUserOfTheSettings(t *testing.T) {
	const (
		one = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
		two = "root:D/InIHSb7yEEbrWz8b9l71RjZJU="
	)
	for _, x := range []struct {
		flag string
		of   func(*Settings) string
	}{
		{"--super-digest", func(s *Settings) string { return s.SuperDigest }},
		{"--x509-super", func(s *Settings) string { return s.X509Super }},
		{"--sasl-super", func(s *Settings) string { return s.SASLSuper }},
	} {
		for name, args := range map[string][]string{
			"":  nil,
			one: {x.flag, one},
			two: {x.flag, one, x.flag, two},
		} {
			s, _, err := parseFlags(args, func(string) (string, bool) { return "", false })
			must.OK(t, err)
			expect.Equal(t, x.of(s), name, "%s of %q", x.flag, args)
		}
		s, _, err := parseFlags([]string{x.flag, one, x.flag, ""}, func(string) (string, bool) { return "", false })
		must.OK(t, err)
		expect.Equal(t, x.of(s), "", "%s, empty at last", x.flag)
	}
	for _, key := range []string{"zookeeper.DigestAuthenticationProvider.superDigest=",
		"X509AuthenticationProvider.superUser=", "zookeeper.X509AuthenticationProvider.superUser="} {
		s, err := load(t, t.TempDir(), "clientPort=2181\ndataDir=$DIR\n"+key)
		must.OK(t, err)
		expect.Equal(t, s.SuperDigest+s.X509Super+s.SASLSuper, "", "super user of %s", key)
	}
}
