// Command zlockd is a lock server that speaks the ZooKeeper protocol. See
// docs/operations.md, or run zlockd --help.
package main

import (
	"os"

	"github.com/zlockd/zlockd/cmd/zlockd/daemon"
)

func main() { os.Exit(daemon.Main(os.Args, nil)) }
