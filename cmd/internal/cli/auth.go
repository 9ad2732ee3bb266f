package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/zlockd/zlockd/client/zk"
)

// ReadAuth reads a file of identities, one SCHEME:SECRET in a line. It skips empty lines and lines that begin
// with #. `exposed` reports whether other users can read the file. Errors never contain a line of the file,
// because it may be a secret.
func ReadAuth(path string) (list []zk.Auth, exposed bool, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, false, err
	}
	if info, err := os.Stat(path); err == nil {
		exposed = info.Mode().Perm()&0o044 != 0
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		scheme, secret, ok := strings.Cut(line, ":")
		if !ok || scheme == "" {
			return nil, exposed, fmt.Errorf("a line does not have the form SCHEME:SECRET")
		}
		list = append(list, zk.Auth{Scheme: scheme, Secret: []byte(secret)})
	}
	if list == nil {
		return nil, exposed, fmt.Errorf("%s is empty", path)
	}
	return list, exposed, nil
}
