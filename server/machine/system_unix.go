//go:build !windows

package machine

import (
	"math"
	"strings"

	"golang.org/x/sys/unix"
)

func osVersion() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "<NA>"
	}
	release, _, _ := strings.Cut(string(u.Release[:]), "\x00")
	return release
}

// MaxOpenFiles returns how many file descriptors this process may have, -1 if the system does not say.
func MaxOpenFiles() int64 {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return -1
	}
	return int64(min(r.Cur, math.MaxInt64))
}
