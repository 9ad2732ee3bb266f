package connect

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client/zk"
)

// completionPatience bounds a completion, because the user has pressed the tab key and waits.
const completionPatience = 300 * time.Millisecond

// NamesBelow lists a node's children if the server answers soon.
func NamesBelow(getenv func(string) string, fs *pflag.FlagSet, dir string) []string {
	conn := &Flags{}
	conn.Servers, _ = fs.GetString("servers")
	conn.Chroot, _ = fs.GetString("chroot")
	servers, chroot, err := conn.Address(getenv)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	c, err := zk.Dial(ctx, servers, zk.Options{})
	if err != nil {
		return nil
	}
	defer func() { _ = c.Close(ctx) }()
	names, _, _ := c.Children(ctx, cmp.Or(chroot+dir, "/"))
	slices.Sort(names)
	return names
}
