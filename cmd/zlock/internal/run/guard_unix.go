//go:build !windows

package run

import (
	"bytes"
	"context"
	"encoding/gob"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/cmd/zlock/internal/supervise"
)

// Guard is zlock __guard, the process that guards COMMAND.
func Guard() *call.Command {
	return &call.Command{
		Name: "__guard", Args: "STDIN", Least: 1, Most: 1,
		Does: "start a command and end it when its lock is no longer safe", Hidden: true,
		Setup: func(*pflag.FlagSet) func(*call.Call) error {
			return func(c *call.Call) error {
				stdin, err := strconv.Atoi(c.Args[0])
				if err != nil {
					return cli.Usagef("not for use by hand")
				}
				return supervise.Watch(c.Stdin, stdin, c.Say, closeSession)
			}
		},
	}
}

// Keep is zlock __keep, the first process of a process namespace. When it ends, all others in it end.
func Keep() *call.Command {
	return &call.Command{
		Name: "__keep", Args: "KILL-AFTER FOREGROUND DIE FILE ARGV…",
		Does: "be the first process of a namespace", Least: 5, Most: -1,
		Hidden: true,
		Setup: func(flags *pflag.FlagSet) func(*call.Call) error {
			flags.SetInterspersed(false)
			return func(c *call.Call) error {
				if os.Getpid() != 1 {
					return cli.Usagef("not for use by hand")
				}
				killAfter, err := time.ParseDuration(c.Args[0])
				if err != nil {
					return err
				}
				foreground, die := c.Args[1] == "true", c.Args[2] == "true"
				return supervise.Keep(killAfter, foreground, die, c.Args[3], c.Args[4:])
			}
		},
	}
}

// sessionKey is the will of zlock: what the guard needs to close zlock's session if zlock dies.
type sessionKey struct {
	Servers string
	Session zk.Session
	Files   connect.TLSFiles
}

func (k *sessionKey) encode() []byte {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(k); err != nil {
		panic("a session's key is not encoded: " + err.Error())
	}
	return b.Bytes()
}

// closeSession ends the session of a zlock that has died, so that its locks move at once. If no server
// answers in time, they move only after the session's timeout.
func closeSession(will []byte) error {
	var k sessionKey
	if err := gob.NewDecoder(bytes.NewReader(will)).Decode(&k); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(k.Session.Timeout, time.Second))
	defer cancel()
	cfg, err := k.Files.TLSConfig()
	if err != nil {
		return err
	}
	conn, err := zk.Dial(ctx, k.Servers, zk.Options{Resume: k.Session, TLS: cfg})
	if err != nil {
		return nil // nothing more to do: the session has ended, or its timeout will end it
	}
	return conn.Close(ctx)
}
