package client

import (
	"crypto/rand"
	"os"
	"path/filepath"

	"github.com/zlockd/zlockd/client/recipe"
)

// ownerOf describes this process.
func ownerOf(cmd string) recipe.Owner {
	o := recipe.Owner{PID: os.Getpid(), Cmd: cmd, User: os.Getenv("USER"), Client: rand.Text()}
	o.Host, _ = os.Hostname()
	if o.Cmd == "" {
		o.Cmd = filepath.Base(os.Args[0])
	}
	return o
}
