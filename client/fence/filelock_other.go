//go:build !unix || solaris || aix

package fence

import (
	"errors"
	"os"
)

// tryLockFile refuses: without a lock that the system releases when its holder dies, a FileStore
// would be unsafe or stuck.
func tryLockFile(*os.File, bool) (bool, error) { return false, errors.ErrUnsupported }

func syncDir(string) error { return nil }
