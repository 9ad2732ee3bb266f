package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// FreePorts returns n unused loopback addresses. No other test on this machine gets them while this process
// runs. The ports are below the range from which the system takes ports for outgoing connections, so no
// outgoing connection takes a port before its server listens on it. The ports are above those that the tests
// of the clients use without reserving them: 2000 to 16,100, 20,000 to 20,030 and 22,181 to 22,883.
func FreePorts(n int) ([]string, error) {
	if err := os.MkdirAll(reserved.dir, 0o700); err != nil {
		return nil, err
	}
	var list []string
	for tries := 0; len(list) < n; tries++ {
		if tries > 1000+10*n {
			return nil, fmt.Errorf("no free ports found in %d tries", tries)
		}
		if port := 23_000 + rand.IntN(9_000); Reserve(port) {
			list = append(list, fmt.Sprintf("127.0.0.1:%d", port))
		}
	}
	return list, nil
}

// The variable reserved holds the locked files of the ports of this process. The files stay locked, because a
// test may start a killed server again on its port.
var reserved = struct {
	sync.Mutex
	dir   string
	files []*os.File
}{dir: filepath.Join(os.TempDir(), fmt.Sprintf("zlockd-test-ports-%d", os.Getuid()))}

// Reserve locks a port's file until the process ends, and reports whether the port is free.
func Reserve(port int) bool {
	reserved.Lock()
	defer reserved.Unlock()
	f, err := os.OpenFile(filepath.Join(reserved.dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	if !tryLock(f) {
		f.Close()
		return false
	}
	reserved.files = append(reserved.files, f)
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		l.Close()
	}
	return err == nil
}
