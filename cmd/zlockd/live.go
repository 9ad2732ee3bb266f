package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/raftfsm/offline"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

// isAddress reports whether name is a server's address and not a path: no file has that name,
// and it ends in a port.
func isAddress(name string) bool {
	if _, err := os.Stat(name); err == nil || strings.Contains(name, "/") {
		return false
	}
	_, port, err := net.SplitHostPort(name)
	return err == nil && port != ""
}

const (
	liveReaders = 64               // concurrent requests
	liveWait    = 30 * time.Second // for a connection
)

// readRunning reads every node of a running server, in no order. Nodes may change during the
// read: a server must stand still to be compared.
func readRunning(ctx context.Context, addr, authFile string) (*offline.Content, error) {
	var auth []zk.Auth
	if authFile != "" {
		list, _, err := cli.ReadAuth(authFile)
		if err != nil {
			return nil, fmt.Errorf("--auth-file: %w", err)
		}
		for _, a := range list {
			auth = append(auth, zk.Auth{Scheme: a.Scheme, Secret: []byte(a.Secret)})
		}
	}
	dialCtx, cancel := context.WithTimeout(ctx, liveWait)
	defer cancel()
	conn, err := zk.Dial(dialCtx, addr, zk.Options{Auth: auth})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	defer func() { _ = conn.Close(context.Background()) }() // the session only reads
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l := &liveTree{conn: conn, c: &offline.Content{Name: addr, Wire: true, Nodes: map[string]*zkfiles.Node{}},
		todo: []string{"/"}}
	l.more.L = &l.mu
	var wg sync.WaitGroup
	for range liveReaders {
		wg.Go(func() { l.work(ctx, stop) })
	}
	wg.Wait()
	if l.err != nil {
		return nil, fmt.Errorf("%s: %w", addr, l.err)
	}
	return l.c, ctx.Err()
}

// liveTree is a tree that several workers read.
type liveTree struct {
	conn *zk.Conn

	mu   sync.Mutex
	more sync.Cond // todo has grown, or all nodes are read
	todo []string
	busy int // workers with a node in hand
	c    *offline.Content
	err  error
}

func (l *liveTree) work(ctx context.Context, stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.more.Broadcast()
	for {
		for len(l.todo) == 0 && l.busy > 0 && l.err == nil {
			l.more.Wait()
		}
		if len(l.todo) == 0 || l.err != nil {
			return
		}
		path := l.todo[len(l.todo)-1]
		l.todo = l.todo[:len(l.todo)-1]
		l.busy++
		l.mu.Unlock()
		n, names, err := readNode(ctx, l.conn, path)
		l.mu.Lock()
		l.busy--
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // a node deleted since is not an error
			if l.err == nil {
				l.err = fmt.Errorf("%s: %w", path, err)
			}
			stop()
			return
		}
		if err == nil {
			l.c.Nodes[path] = n
			l.c.Zxid = max(l.c.Zxid, n.Mzxid, n.Pzxid)
			for _, name := range names {
				l.todo = append(l.todo, strings.TrimSuffix(path, "/")+"/"+name)
			}
		}
		l.more.Broadcast()
	}
}

func readNode(ctx context.Context, conn *zk.Conn, path string) (*zkfiles.Node, []string, error) {
	got, err := conn.Get(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	acl, _, err := conn.GetACL(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	st := got.Stat
	n := &zkfiles.Node{Data: got.Data, ACL: acl, Stat: zkfiles.Stat{
		Czxid: st.Czxid, Mzxid: st.Mzxid, Pzxid: st.Pzxid, Ctime: st.Ctime, Mtime: st.Mtime,
		Version: st.Version, Aversion: st.Aversion, Owner: st.EphemeralOwner,
		// The protocol counts creations twice and subtracts the existing children.
		Cversion: int32((int64(st.Cversion) + int64(st.NumChildren)) / 2),
	}}
	if st.NumChildren == 0 {
		return n, nil, nil
	}
	names, _, err := conn.Children(ctx, path)
	return n, names, err
}
