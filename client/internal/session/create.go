package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Node is an ephemeral node to create. The id in its name makes the name unique.
type Node struct {
	zk.Create
	Lasting bool // the directory must stay even when it is empty

	// If Create makes several nodes, it reads the fields below only from the first node.
	Also []zk.Op // more operations for the transaction; if there are any, a missing directory is an error
	List bool    // request the list of the directory along with the creation
}

// Dir returns the node's directory.
func (n Node) Dir() string { return recipe.Parent(n.Path) }

// in() returns those names that begin with the name of n. Earlier requests to create n have made these nodes.
func (n Node) in(names []string) (found []string) {
	for _, name := range names {
		if strings.HasPrefix(name, recipe.Base(n.Path)) {
			found = append(found, name)
		}
	}
	return found
}

// Made is a node that the server has created. It existed at that time, and may be gone now.
type Made struct {
	Path, Name string // Name is the last part of Path
	Stat       zk.Stat
}

// at() returns the node as the server made it.
func (n Node) at(path string, stat zk.Stat) Made {
	return Made{Path: path, Name: recipe.Base(path), Stat: stat}
}

// Dirs returns the directory of each node.
func Dirs[N interface{ Dir() string }](nodes []N) []string {
	dirs := make([]string, len(nodes))
	for i, n := range nodes {
		dirs[i] = n.Dir()
	}
	return dirs
}

// Create creates ephemeral nodes of one directory, all or none. A lost reply neither leaves a node behind nor
// makes a second one. When ctx or the session ends, Create returns at once; the client finishes and cleans up
// in the background. The result includes the list of the first node's directory. If the list is nil, Create
// did not request it or did not get it, and the caller must list the directory itself.
func (e *Epoch) Create(ctx context.Context, nodes ...Node) ([]Made, *zk.Names, error) {
	if err := e.room(ctx, nodes[0].Dir()); err != nil {
		return nil, nil, err
	}
	r := e.ask(nodes)
	if e.Rest(ctx, nil, r.done) == nil {
		if made, list, err := r.answer(ctx, e); err == nil {
			return made, list, nil
		}
	}
	var made []Made
	var list *zk.Names
	var err error
	done := make(chan struct{})
	e.k.Detached(func(bg context.Context) {
		defer close(done)
		made, list, err = e.follow(bg, r)
	})
	if left := e.Rest(ctx, nil, done); left != nil {
		e.k.LeaveBehind(Dirs(nodes), func(context.Context) { // waits until the outcome is known
			<-done
			for _, n := range made {
				e.Reap(n.Path)
			}
		})
		return nil, nil, left
	}
	return made, list, err
}

// CreateUntilKnown creates nodes as Create does, but returns only when it is certain whether they exist. ctx
// should last that long.
func (e *Epoch) CreateUntilKnown(ctx context.Context, nodes ...Node) ([]Made, error) {
	made, _, err := e.follow(ctx, e.ask(nodes))
	return made, err
}

// creation is a request to create nodes, already sent.
type creation struct {
	nodes []Node
	sent  Reading
	done  <-chan struct{} // closed when the outcome is known or can no longer arrive
	wait  func(context.Context) ([]zk.Result, error)
	list  *zk.Reply[zk.Names] // nil: the list was not requested
}

// ask() sends a request to create nodes.
func (e *Epoch) ask(nodes []Node) creation {
	first, p := nodes[0], e.conn.Pipe()
	r := creation{nodes: nodes, sent: e.k.Now()}
	ops := make([]zk.Op, len(nodes), len(nodes)+len(first.Also))
	for i, n := range nodes {
		ops[i] = n.Create
	}
	r.done, r.wait = Ask(p, append(ops, first.Also...)...)
	if first.List {
		r.list = p.Names(first.Dir())
	}
	p.Send()
	return r
}

// Ask adds to p one operation as a request, or several operations as a transaction. The channel closes when
// the outcome is known or can no longer arrive.
func Ask(p *zk.Pipe, ops ...zk.Op) (<-chan struct{}, func(context.Context) ([]zk.Result, error)) {
	if len(ops) == 1 {
		switch op := ops[0].(type) {
		case zk.Create:
			r := p.Create(op)
			return r.Done(), func(ctx context.Context) ([]zk.Result, error) {
				made, err := r.Wait(ctx)
				return []zk.Result{zk.Result(made)}, err
			}
		case zk.Delete:
			r := p.Delete(op)
			return r.Done(), func(ctx context.Context) ([]zk.Result, error) {
				_, err := r.Wait(ctx)
				return nil, err
			}
		}
	}
	r := p.Multi(ops...)
	return r.Done(), r.Wait
}

// answer() waits for the answer to the request.
func (r creation) answer(ctx context.Context, e *Epoch) ([]Made, *zk.Names, error) {
	res, err := r.wait(ctx)
	if err != nil {
		return nil, nil, err
	}
	e.wrote(r.sent)
	made := make([]Made, len(r.nodes))
	for i, n := range r.nodes {
		made[i] = n.at(res[i].Path, res[i].Stat)
	}
	if r.list == nil {
		return made, nil, nil
	}
	list, err := r.list.Wait(ctx)
	if err != nil {
		return made, nil, nil //nolint:nilerr // the next list shows the reason
	}
	return made, &list, nil
}

// follow() repeats a request until it is certain whether the nodes exist. Each repetition uses the same
// names, apart from the numbers, so follow() recognises a second creation of the same node.
func (e *Epoch) follow(ctx context.Context, r creation) ([]Made, *zk.Names, error) {
	for n := 0; ; r = e.ask(r.nodes) {
		made, list, err := r.answer(ctx, e)
		switch {
		case errors.Is(err, zk.ErrNoNode) && r.nodes[0].Also == nil:
			// Repeat this without limit: the server may remove the empty container again before the node is made.
			first := r.nodes[0]
			if err := e.Ensure(ctx, first.Dir(), first.Lasting, first.ACL); err != nil {
				return nil, nil, err
			}
			continue
		case errors.Is(err, zk.ErrNoAuth):
			return nil, nil, e.divided(ctx, r.nodes, err)
		case !errors.Is(err, zk.ErrUncertain):
			return made, list, err
		}
		made, err = e.recover(ctx, r.nodes)
		if err != nil || made != nil {
			return made, nil, err
		}
		// The creation did not happen. Do not repeat it in a tight loop: a server may refuse without closing
		// the connection.
		if n++; n > 1 {
			if err := Pause(ctx, Backoff(n-1, 10*time.Millisecond, time.Second)); err != nil {
				return nil, nil, err
			}
		}
	}
}

// divided() returns an error if a server with --one-layout has refused nodes because contenders of another
// kind exist. Otherwise it returns `refusal`.
func (e *Epoch) divided(ctx context.Context, nodes []Node, refusal error) error {
	for _, n := range nodes {
		names, err := e.Children(ctx, n.Dir())
		if err != nil {
			return refusal // the session may not list the contenders, so it cannot find out the reason
		}
		own := recipe.KinOf(recipe.Base(n.Path))
		if n.Mode == zk.EphemeralSequential {
			own = recipe.KinOf(recipe.Base(n.Path) + "0000000000")
		}
		for _, name := range names {
			if own.Blind().Has(recipe.KinOf(name)) {
				return fmt.Errorf("%w: %s belongs to another kind of lock, and the servers refuse a "+
					"second kind",
					recipe.ErrMixedLayout, recipe.Join(n.Dir(), name))
			}
		}
	}
	return refusal
}

// recover() finds out whether a creation with a lost reply took effect. It returns nil, nil if it did not. A
// transaction takes effect as a whole or not at all.
func (e *Epoch) recover(ctx context.Context, nodes []Node) (made []Made, err error) {
	defer func() {
		if err != nil { // the outcome is still unknown: let the reaper remove nodes that may exist
			e.reapLost(nodes)
		}
	}()
	dir := nodes[0].Dir()
	names, err := e.relist(ctx, dir)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	for _, n := range nodes {
		found := n.in(names)
		if len(found) == 0 {
			continue
		}
		slices.Sort(found)
		for _, extra := range found[1:] {
			e.Reap(recipe.Join(dir, extra))
		}
		path := recipe.Join(dir, found[0])
		st, err := e.conn.Exists(ctx, path)
		if err != nil {
			return nil, err
		}
		if st == nil || st.EphemeralOwner != e.sid {
			continue // the node is gone again, or is another client's
		}
		made = append(made, n.at(path, *st))
	}
	if len(made) < len(nodes) {
		for _, n := range made { // another client removed some of the nodes, so remove the others too
			e.Reap(n.Path)
		}
		return nil, nil
	}
	e.k.count.recovered.Add(1)
	return made, nil
}

// Ensure makes a lock's directory. A lock delay stores its mark in the directory's data. So with a lock delay
// the directory is lasting: it stays after the last contender has gone.
func (e *Epoch) Ensure(ctx context.Context, dir string, lasting bool, acl []zk.ACL) error {
	if !lasting {
		return e.makeDir(ctx, dir, acl)
	}
	for {
		err := Again(ctx, func() error {
			_, err := e.conn.Create(ctx, zk.Create{Path: dir, Data: []byte{}, Mode: zk.Persistent, ACL: acl})
			return err
		})
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return nil
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
		if err := e.makeDir(ctx, recipe.Parent(dir), acl); err != nil {
			return err
		}
	}
}

// room() waits until the client may add nodes to a directory.
func (e *Epoch) room(ctx context.Context, dir string) error {
	for wait := e.k.crowd.room(dir); wait != nil; wait = e.k.crowd.room(dir) {
		if err := e.Rest(ctx, nil, wait); err != nil {
			return err
		}
	}
	return nil
}

// reapLost removes the nodes that a creation with an unknown outcome may have made.
func (e *Epoch) reapLost(nodes []Node) {
	e.ReapFunc(Dirs(nodes), func(ctx context.Context) error {
		dir := nodes[0].Dir()
		names, err := e.relist(ctx, dir)
		if err != nil {
			return err
		}
		var paths []string
		for _, n := range nodes {
			for _, name := range n.in(names) {
				paths = append(paths, recipe.Join(dir, name))
			}
		}
		return e.deleteEach(ctx, paths...)
	})
}
