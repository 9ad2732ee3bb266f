package settings

import (
	"os"
	"strings"

	"github.com/zlockd/zlockd/raftfsm/secretfile"
)

// withoutSecrets returns the text of a zoo.cfg without its secrets, to show it to operators. It removes the
// value of each key whose name suggests a secret, even in a comment. superUser is such a key, because its
// value may be a hash.
func withoutSecrets(text string) string {
	secret := func(s string) bool {
		s = strings.TrimPrefix(strings.TrimLeft(strings.ToLower(s), "#! \t"), "zookeeper.")
		return strings.Contains(s, "passw") || strings.Contains(s, "digest") || strings.Contains(s, "secret") ||
			strings.HasPrefix(s, "superuser")
	}
	lines := strings.SplitAfter(lineEnds.Replace(text), "\n")
	for i := 0; i < len(lines); i++ {
		first := i
		line, last := joined(lines, i)
		i = last
		if isComment(line) {
			if secret(line) {
				lines[i] = "# (not shown)\n"
			}
			continue
		}
		key, _ := splitProperty(line)
		if key = unescape(key); secret(key) {
			clear(lines[first : i+1])
			lines[first] = key + "=(not shown)\n"
		}
	}
	return strings.Join(lines, "")
}

// checkSecrets refuses a zoo.cfg that has a secret if other users of the machine can read the file. The hash
// of --super-digest is a secret: without a salt, passwords can be tried on it.
func (s *Settings) checkSecrets() {
	if s.SuperDigest == "" || s.origin["super-digest"] != s.Config || s.Config == "" {
		return
	}
	if info, err := os.Stat(s.Config); err == nil && info.Mode().IsRegular() {
		if err := secretfile.Check(s.Config, info); err != nil {
			s.Fault("--super-digest: %w", err)
		}
	}
}
