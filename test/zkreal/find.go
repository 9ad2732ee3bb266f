package zkreal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Where Debian's packages put what is needed.
const (
	jarZooKeeper = "/usr/share/java/zookeeper.jar" // names all it needs in its manifest
	jarBinding   = "/usr/share/java/slf4j-log4j12.jar"
	jarLog       = "/usr/share/java/log4j-1.2.jar"
)

// ErrMissing means that Java or ZooKeeper are not installed.
var ErrMissing = errors.New("zkreal: not installed")

// Available returns nil if ZooKeeper can be run here, and otherwise an error
// that names what to install.
func Available() error {
	if _, err := exec.LookPath("java"); err != nil {
		return fmt.Errorf("%w: java (on Debian: apt-get install default-jre-headless zookeeper)", ErrMissing)
	}
	for _, jar := range []string{jarZooKeeper, jarBinding, jarLog} {
		if _, err := os.Stat(jar); err != nil {
			return fmt.Errorf("%w: %s (on Debian: apt-get install zookeeper)", ErrMissing, jar)
		}
	}
	return nil
}

// Required reports whether a missing ZooKeeper is a failure on this machine.
func Required() bool {
	return os.Getenv("ZLOCKD_REQUIRE_STOCK") == "1" || strings.EqualFold(os.Getenv("CI"), "true")
}

// Require ends the test unless ZooKeeper can be run here.
func Require(t testing.TB) {
	t.Helper()
	err := Available()
	switch {
	case err == nil:
	case Required():
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}
