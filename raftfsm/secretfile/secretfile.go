// Package secretfile refuses files with secrets that every user of the machine may read: private keys,
// passwords, tokens and hashes that can be guessed.
package secretfile

import (
	"fmt"
	"io/fs"
	"runtime"
)

// Check returns an error with advice if every user of the machine has rights on a file.
func Check(path string, info fs.FileInfo) error {
	mode := info.Mode().Perm()
	if mode&0o007 == 0 || runtime.GOOS == "windows" { // on Windows a mode says nothing about other users
		return nil
	}
	return fmt.Errorf("%s can be read by every user of this machine (mode %04o): run chmod o-rwx %s; if "+
		"other users may have read the file, replace the secret in it", path, mode, path)
}
