package settings

import (
	"os"
	"strings"

	"github.com/zlockd/zlockd/raftfsm/secretfile"
)

// withoutSecrets returns the text of a zoo.cfg that operators may see. It leaves out the values of all keys
// whose names look like those of secrets, also in lines that are comments. The key superUser is one of them,
// because its value may be a hash.
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

// checkSecrets refuses a configuration that holds a secret and that every user of the machine can read. The
// hash of --super-digest is a secret, because it has no salt.
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
