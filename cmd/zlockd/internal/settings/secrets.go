package settings

import "strings"

// withoutSecrets returns the text of a zoo.cfg that operators may see. It leaves out the values of all keys
// with the names of secrets, also in lines that are comments. The value of superUser may be a hash.
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
