package data

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/raftfsm/offline"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

// isAddress reports whether `name` is a server's address, and not a path: it ends in a port, and no file has
// that name.
func isAddress(name string) bool {
	if _, err := os.Stat(name); err == nil || strings.Contains(name, "/") {
		return false
	}
	_, port, err := net.SplitHostPort(name)
	return err == nil && port != ""
}

const (
	liveReaders = 64               // concurrent requests
	liveWait    = 30 * time.Second // how long to wait for a connection
)

// readRunning reads all nodes of a running server, level by level. The nodes may change while it reads. For a
// comparison no client must write to the server.
func readRunning(ctx context.Context, addr, authFile string) (*offline.Content, error) {
	var auth []zk.Auth
	if authFile != "" {
		var err error
		if auth, _, err = cli.ReadAuth(authFile); err != nil {
			return nil, fmt.Errorf("--auth-file: %w", err)
		}
	}
	dialCtx, cancel := context.WithTimeout(ctx, liveWait)
	defer cancel()
	conn, err := zk.Dial(dialCtx, addr, zk.Options{Auth: auth})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	defer func() { _ = conn.Close(context.Background()) }() // ignore the error: the session has no nodes
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c := &offline.Content{Name: addr, Wire: true, Nodes: map[string]*tree.Info{}}
	for paths := []string{"/"}; len(paths) > 0 && ctx.Err() == nil; {
		nodes, names := make([]*tree.Info, len(paths)), make([][]string, len(paths))
		var taken atomic.Int64
		var readers sync.WaitGroup
		for range min(liveReaders, len(paths)) {
			readers.Go(func() {
				for i := taken.Add(1) - 1; i < int64(len(paths)) && ctx.Err() == nil; i = taken.Add(1) - 1 {
					var err error
					nodes[i], names[i], err = readNode(ctx, conn, paths[i])
					if err != nil && !errors.Is(err, zk.ErrNoNode) { // ErrNoNode: a client has removed the node just now
						stop(fmt.Errorf("%s: %s: %w%s", addr, paths[i], err, authHint(err, authFile)))
					}
				}
			})
		}
		readers.Wait()
		var below []string
		for i, n := range nodes {
			if n == nil {
				continue
			}
			c.Nodes[paths[i]], c.Zxid = n, max(c.Zxid, n.Mzxid, n.Pzxid)
			for _, name := range names[i] {
				below = append(below, strings.TrimSuffix(paths[i], "/")+"/"+name)
			}
		}
		paths = below
	}
	return c, context.Cause(ctx)
}

// authHint says how to get the right to read all nodes, if a lack of that right is the error.
func authHint(err error, authFile string) string {
	switch {
	case !errors.Is(err, zk.ErrNoAuth):
		return ""
	case authFile == "":
		return "; give --auth-file a FILE with a line digest:USER:PASSWORD of a user who may read all nodes"
	}
	return "; no user of " + authFile + " (--auth-file) may read it"
}

func readNode(ctx context.Context, conn *zk.Conn, path string) (*tree.Info, []string, error) {
	got, err := conn.Get(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	acl, _, err := conn.GetACL(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	st := got.Stat
	n := &tree.Info{Stat: st, Data: got.Data, ACL: acl}
	// Counter is how many children were created. Cversion is twice that number, minus the number of children
	// that exist.
	n.Counter = int32((int64(st.Cversion) + int64(st.NumChildren)) / 2)
	zkfiles.SetOwner(n, st.EphemeralOwner) // the owner's session, or the mark of a container or a time to live
	if st.NumChildren == 0 {
		return n, nil, nil
	}
	names, _, err := conn.Children(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	return n, names, nil
}
