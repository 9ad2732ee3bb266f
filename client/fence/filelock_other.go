//go:build !unix || solaris || aix

package fence

import (
	"errors"
	"os"
)

// tryLockFile always fails on this system, which has no lock that is released when its holder dies. Without
// such a lock a FileStore would be unsafe, or could block forever.
func tryLockFile(*os.File, bool) (bool, error) { return false, errors.ErrUnsupported }

func syncDir(string) error { return nil }
