package cluster

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// PostgresUser returns the user that runs PostgreSQL, which refuses to run as root. It returns
// nil if the current user is not root.
func PostgresUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
