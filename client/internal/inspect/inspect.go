// Package inspect reads locks that any program uses, and takes locks away from their holders. It does the
// work of the Inspector of package client in one session.
package inspect

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// Lock reads the nodes of one lock. It lets package turns find the holders and the waiters among these nodes.
func Lock(ctx context.Context, e *session.Epoch, path string) (*recipe.Queue, error) {
	list, err := e.Conn().Names(ctx, path)
	var own zk.Node
	if err == nil {
		own, err = e.Conn().Get(ctx, path)
		if errors.Is(err, zk.ErrNoAuth) {
			err = nil // the session only lacks the right to read the data
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		list, err = zk.Names{}, nil
	}
	if err != nil {
		return nil, err
	}
	in := &inspection{e: e, ctx: ctx, path: path, data: string(own.Data)}
	// Each creation and each removal of a child adds one to cversion. So cversion plus the number of children
	// is twice the number of creations.
	in.next = (list.Stat.Cversion + list.Stat.NumChildren) / 2
	if own.Stat.EphemeralOwner != 0 { // the node at `path` is itself the contender of a lock
		return in.queue(&turns.Dir{Path: recipe.Parent(path),
			Nodes: []recipe.Node{nodeOf(recipe.Base(path), own, false)}}), nil
	}
	names := list.List()
	dir := &turns.Dir{Path: path, Data: in.data, Next: in.next}
	part := func(path string, part turns.Part) *turns.Dir {
		return &turns.Dir{Path: path, Sem: in.path, SemData: in.data, Part: part}
	}
	dirs := []*turns.Dir{dir}
	rec, _ := recipe.ParseRecord(own.Data)
	semaphore := slices.Contains(names, recipe.PermitsName) || rec.Limit > 0
	switch {
	case semaphore:
		permits := part(recipe.Join(path, recipe.PermitsName), turns.PermitsPart)
		queue := part(recipe.Join(path, recipe.QueueName), turns.QueuePart)
		names = slices.DeleteFunc(names, func(n string) bool {
			return n == recipe.PermitsName || n == recipe.QueueName
		})
		// Show contenders beside the permits too, although the path's data say that the lock is a semaphore.
		err = errors.Join(in.list(permits), in.list(queue), in.read(dir, names))
		switch {
		case len(dir.Nodes) == 0:
			dirs = []*turns.Dir{permits, queue}
		case len(permits.Nodes)+len(queue.Nodes) > 0:
			dirs = append(dirs, permits, queue)
		}
	case recipe.IsKazooSemaphore(names, in.data):
		queue := part(path+recipe.KazooQueue, turns.QueuePart)
		dirs, err = append(dirs, queue), errors.Join(in.read(dir, names), in.list(queue))
	default:
		err = in.read(dir, names)
	}
	if err != nil {
		return nil, err
	}
	return in.queue(dirs...), nil
}

// inspection is what Lock has read about one lock.
type inspection struct {
	e      *session.Epoch
	ctx    context.Context
	path   string
	data   string // data of the node at path
	next   int32  // the number of the next sequential child of path
	others []string
}

// queue() builds the description of the lock from the nodes read.
func (in *inspection) queue(dirs ...*turns.Dir) *recipe.Queue {
	free := recipe.Lock{Path: in.path, Kind: recipe.KindLock, Layouts: []recipe.Layout{recipe.LayoutCurator},
		Next: in.next}
	q := &recipe.Queue{Lock: free}
	if rec, ok := recipe.ParsePolicyRecord([]byte(in.data)); ok {
		q.Kind, q.Layouts, q.Policy = recipe.KindRWLock, []recipe.Layout{recipe.LayoutPolicy}, rec.Policy
	}
	assembled := 0
	for _, found := range turns.Assemble(dirs, turns.Unseen{}) {
		if found.Path != in.path {
			continue
		}
		if assembled++; assembled == 1 {
			q = &found
			continue
		}
		// Locks of two kinds on one path do not exclude each other, so show the contenders of both.
		q.HeldTwice = q.HeldTwice || found.HeldTwice || len(q.Holders) > 0 && len(found.Holders) > 0
		q.Kind, q.Mixed, q.Total = recipe.KindUnknown, true, q.Total+found.Total
		q.Layouts = append(q.Layouts, found.Layouts...)
		q.Holders, q.Waiters = append(q.Holders, found.Holders...), append(q.Waiters, found.Waiters...)
		q.Participants = append(q.Participants, found.Participants...)
	}
	q.Others = in.others
	for _, l := range [][]recipe.Entry{q.Holders, q.Waiters, q.Participants} {
		for i := range l {
			l[i].Tell()
		}
	}
	for i := range q.Waiters {
		q.Waiters[i].Position = i + 1
	}
	return q
}

// list() reads the contenders of a directory. The directory may be missing.
func (in *inspection) list(d *turns.Dir) error {
	names, err := in.e.Children(in.ctx, d.Path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	return in.read(d, names)
}

// inspectParallel is how many nodes are read at a time.
const inspectParallel = 16

// read() reads the contenders among some children. It leaves out nodes that were removed after the list was
// read. It also leaves out lasting nodes, unless contenders wait for them because of their numbers.
func (in *inspection) read(d *turns.Dir, names []string) error {
	names = slices.DeleteFunc(names, func(n string) bool {
		other := !recipe.MayContend(n)
		if other {
			in.others = append(in.others, n)
		}
		return other
	})
	nodes, errs := make([]recipe.Node, len(names)), make([]error, len(names))
	slots := make(chan struct{}, inspectParallel)
	var wg sync.WaitGroup
	for i := range names {
		slots <- struct{}{}
		wg.Go(func() {
			nodes[i], errs[i] = in.node(d.Path, names[i])
			<-slots
		})
	}
	wg.Wait()
	for i, n := range nodes {
		switch {
		case errors.Is(errs[i], zk.ErrNoNode):
		case errs[i] != nil:
			return errs[i]
		case n.Session == 0 && !n.Hidden && !recipe.IsContender(n.Name):
			in.others = append(in.others, n.Name)
		default:
			d.Nodes = append(d.Nodes, n)
		}
	}
	d.Total = len(d.Nodes)
	return nil
}

// node() reads one contender.
func (in *inspection) node(dir, name string) (recipe.Node, error) {
	path := recipe.Join(dir, name)
	n, err := in.e.Conn().Get(in.ctx, path)
	if !errors.Is(err, zk.ErrNoAuth) {
		return nodeOf(name, n, false), err
	}
	st, err := in.e.Conn().Exists(in.ctx, path)
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		err = nil
	case err == nil && st == nil:
		err = zk.ErrNoNode
	case err == nil:
		n.Stat = *st
	}
	return nodeOf(name, n, true), err
}

func nodeOf(name string, n zk.Node, hidden bool) recipe.Node {
	st := &n.Stat
	return recipe.Node{
		Name: name, Data: string(n.Data), Session: st.EphemeralOwner, Czxid: st.Czxid,
		Ctime: st.Ctime, Mtime: st.Mtime, Version: st.Version, Hidden: hidden,
	}
}

// Walk calls f for every directory at or below `path` that looks like a lock. If `passed` is not nil, Walk
// calls passed() for every directory that it skips because the client may not read it.
func Walk(
	ctx context.Context, e *session.Epoch, path string, depth int, passed func(path string),
	f func(*recipe.Queue) error,
) error {
	list, err := e.Conn().Names(ctx, path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		if passed != nil {
			passed(path)
		}
		return nil
	case err != nil:
		return err
	}
	names := list.List()
	slices.Sort(names)
	is, err := looksLikeLock(ctx, e, path, names, list.Stat)
	if err != nil {
		return err
	}
	if is {
		q, err := Lock(ctx, e, path)
		if err != nil {
			return err
		}
		if err := f(q); err != nil {
			return err
		}
		if q.Kind == recipe.KindSemaphore {
			return nil // the children of a semaphore belong to it and are not locks themselves
		}
	}
	if depth == 0 {
		return nil
	}
	for _, n := range names {
		if path == "/" && n == "zookeeper" && e.Conn().Chroot() == "" || is && recipe.IsContender(n) {
			continue
		}
		if err := Walk(ctx, e, recipe.Join(path, n), depth-1, passed, f); err != nil {
			return err
		}
	}
	return nil
}

// looksLikeLock reports whether the children or the data of a directory say that it is a lock.
func looksLikeLock(
	ctx context.Context, e *session.Epoch, path string, names []string, st zk.Stat,
) (bool, error) {
	switch {
	case path == "/" || st.EphemeralOwner != 0:
		return false, nil
	case slices.Contains(names, recipe.PermitsName):
		return true, nil
	}
	live, err := anyLive(ctx, e, path, names)
	if live || err != nil || st.DataLength == 0 || st.DataLength > recipe.MaxOwnerData {
		return live, err
	}
	n, err := e.Conn().Get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		return false, nil
	}
	rec, ok := recipe.ParseRecord(n.Data)
	return ok && rec.ZL == 1 || len(names) > 0 && recipe.IsKazooSemaphore(names, string(n.Data)), err
}

// anyLive reports whether a child with the name of a contender is ephemeral: a lasting node with
// such a name is no contender.
func anyLive(ctx context.Context, e *session.Epoch, path string, names []string) (bool, error) {
	for _, n := range names {
		if n != recipe.SimpleName && !recipe.IsContender(n) {
			continue
		}
		st, err := e.Conn().Exists(ctx, recipe.Join(path, n))
		if err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return false, err
		}
		if err != nil || st != nil && st.EphemeralOwner != 0 {
			return true, nil
		}
	}
	return false, nil
}
