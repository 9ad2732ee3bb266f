package secretfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestFileIsSecret(t *testing.T) {
	for mode, secret := range map[os.FileMode]bool{0o600: true, 0o640: true, 0o660: true, 0o644: false,
		0o604: false, 0o602: false, 0o601: false} {
		path := filepath.Join(t.TempDir(), "file")
		must.OK(t, os.WriteFile(path, nil, 0o600))
		must.OK(t, os.Chmod(path, mode))
		err := Check(path, must.Get(os.Stat(path))(t))
		if secret {
			expect.OK(t, err, "mode %04o", mode)
			continue
		}
		if expect.Fails(t, err, "mode %04o", mode) {
			expect.Has(t, err.Error(), "chmod o-rwx "+path)
		}
	}
}
