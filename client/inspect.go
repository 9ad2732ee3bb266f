package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/zk"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
)

// Queue describes a lock: who holds it and who waits.
type Queue struct {
	Path string `json:"path"`
	// Kind is "lock", "rwlock", "semaphore" or "simple".
	Kind   string `json:"kind"`
	Layout Layout `json:"-"`
	// LayoutName is Layout in words.
	LayoutName string   `json:"layout"`
	Policy     string   `json:"policy,omitempty"` // of LayoutPolicy
	Limit      int      `json:"limit,omitempty"`  // of a semaphore, if stored
	Holders    []Entry  `json:"holders"`
	Waiters    []Entry  `json:"waiters"`
	Foreign    []string `json:"foreign,omitempty"` // children that are no contenders
	// Mixed says that contenders are there that cannot see each other.
	Mixed   bool  `json:"mixed,omitempty"`
	NextSeq int32 `json:"nextSeq"` // the number the next contender will get
}

// Entry is one contender.
type Entry struct {
	Node     string      `json:"node"` // relative to the lock's path
	Mode     fence.Mode  `json:"mode"`
	Position int         `json:"position"` // 0 for holders, 1 for the first that waits
	Session  int64       `json:"session,string"`
	Token    fence.Token `json:"token"` // of holders; of waiters what their node's creation says
	Maker    string      `json:"maker"` // "zlock", "curator", "go-zookeeper", "kazoo" or "unknown"
	// Owner is nil if the node has no owner record; Raw is its data then, cut.
	Owner        *Owner    `json:"owner,omitempty"`
	Raw          string    `json:"raw,omitempty"`
	WaitingSince time.Time `json:"waitingSince"`
	// HeldSince is zero if it is not known; then it is after WaitingSince.
	HeldSince time.Time `json:"heldSince,omitzero"`
	BlockedBy string    `json:"blockedBy,omitempty"` // the node waited for
}

// Asked returns the request to leave, if there is one.
func (e Entry) Asked() (Revocation, bool) {
	if e.Owner != nil && e.Owner.Revoke != nil {
		return *e.Owner.Revoke, true
	}
	return recipe.RevocationIn([]byte(e.Raw))
}

var makerNames = [...]string{recipe.MakerUnknown: "unknown", recipe.MakerSelf: "zlock", recipe.MakerCurator: "curator", recipe.MakerGo: "go-zookeeper", recipe.MakerKazoo: "kazoo"}

// maxRaw bounds how much of foreign data is shown.
const maxRaw = 200

// Inspect reads who holds a lock and who waits for it. The layout is recognised.
// A path that does not exist has neither holders nor waiters.
func (c *Client) Inspect(ctx context.Context, path string) (*Queue, error) {
	var q *Queue
	err := c.steadily(ctx, path, func(e *epoch) error {
		err := e.sync(ctx, path)
		if err == nil {
			q, err = c.inspect(ctx, e, path)
		}
		return err
	})
	return q, err
}

// inspector gathers what is known of one lock.
type inspector struct {
	c   *Client
	e   *epoch
	ctx context.Context
	q   *Queue
}

func (c *Client) inspect(ctx context.Context, e *epoch, path string) (*Queue, error) {
	in := &inspector{c: c, e: e, ctx: ctx, q: &Queue{Path: path, Kind: "lock"}}
	list, err := e.names(ctx, path)
	var own zk.Node
	if err == nil {
		own, err = e.get(ctx, path)
		if errors.Is(err, zk.ErrNoAuth) {
			err = nil // only its data may not be read
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		list, err = zk.Names{}, nil
	}
	if err != nil {
		return nil, err
	}
	// Every creation and every removal of a child counts in cversion.
	in.q.NextSeq = (list.Stat.Cversion + list.Stat.NumChildren) / 2
	err = in.recognise(list.List(), own.Data)
	if in.q.LayoutName == "" {
		in.q.LayoutName = in.q.Layout.String()
	}
	return in.q, err
}

// recognise finds out what kind of lock it is and reads its contenders.
func (in *inspector) recognise(names []string, data []byte) error {
	rec, _ := recipe.ParseRecord(data)
	in.q.Limit = rec.Limit
	switch {
	case rec.Layout == recipe.PolicyLayout:
		return in.policy(names, data)
	case slices.Contains(names, permitsName) || rec.Limit > 0:
		return in.semaphore(LayoutCurator, names)
	case kazooLimit(names, data) > 0:
		in.q.Limit = kazooLimit(names, data)
		return in.semaphore(LayoutKazoo, names)
	case len(names) == 1 && names[0] == simpleName:
		in.q.Kind = "simple"
		return in.read(&in.q.Holders, "", []recipe.Contender{{Name: simpleName, Maker: recipe.MakerSelf}})
	}
	in.q.Layout = layoutOf(names)
	return in.queue(names)
}

// layoutOf guesses the layout from names.
func layoutOf(names []string) Layout {
	found := LayoutCurator
	for _, n := range names {
		if _, l, ok := recipe.ParseName(n); ok {
			if l == LayoutCurator {
				return l
			}
			found = l
		}
	}
	return found
}

// queue reads a lock or read-write lock.
func (in *inspector) queue(names []string) error {
	var q []recipe.Contender
	rw := false
	for _, n := range names {
		c, l, ok := recipe.ParseName(n)
		if !ok || c.Kind == recipe.RoleLease {
			in.q.Foreign = append(in.q.Foreign, n)
			continue
		}
		in.q.Mixed = in.q.Mixed || l != in.q.Layout
		rw = rw || c.Kind == recipe.RoleRead || c.Kind == recipe.RoleWrite
		q = append(q, c)
	}
	if len(q) == 0 {
		q = in.unknown(names)
	}
	if rw {
		in.q.Kind = "rwlock"
	}
	if _, _, err := recipe.QueueOf(in.q.Layout, names, rw); err == nil {
		in.q.Mixed = false // such as a kazoo lock that looks at ours too
	}
	slices.SortFunc(q, recipe.Compare)
	waits := map[string]string{}
	for i, c := range q {
		for _, before := range slices.Backward(q[:i]) {
			if (recipe.Rule{Kind: c.Kind}).ExcludedBy(before) {
				waits[c.Name] = before.Name
				break
			}
		}
	}
	return in.readQueue(q, waits)
}

// unknown reads numbered nodes of a recipe that we do not know as a queue: most
// such recipes are exclusive locks.
func (in *inspector) unknown(names []string) (q []recipe.Contender) {
	in.q.Foreign = nil
	for _, n := range names {
		if c, ok := parseNumbered(n); ok {
			q, in.q.LayoutName = append(q, c), "unknown"
		} else {
			in.q.Foreign = append(in.q.Foreign, n)
		}
	}
	return q
}

// readQueue reads contenders in order, of which some wait, for a node if it is known.
func (in *inspector) readQueue(q []recipe.Contender, waits map[string]string) error {
	var all []Entry
	if err := in.read(&all, "", q); err != nil {
		return err
	}
	for _, en := range all {
		if on, ok := waits[en.Node]; ok {
			en.BlockedBy, en.Position, en.HeldSince = on, len(in.q.Waiters)+1, time.Time{}
			in.q.Waiters = append(in.q.Waiters, en)
		} else {
			in.q.Holders = append(in.q.Holders, en)
		}
	}
	return nil
}

// inspectParallel is how many nodes are read at a time.
const inspectParallel = 16

// read reads the nodes of contenders. Nodes that have gone meanwhile are left out.
func (in *inspector) read(into *[]Entry, sub string, q []recipe.Contender) error {
	type result struct {
		en  Entry
		ok  bool
		err error
	}
	results := make([]result, len(q))
	slots := make(chan struct{}, inspectParallel)
	var wg sync.WaitGroup
	for i, c := range q {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wg.Done() }()
			r := &results[i]
			r.en, r.ok, r.err = in.entry(sub, c)
		}()
	}
	wg.Wait()
	for _, r := range results {
		if r.err != nil {
			return r.err
		}
		if r.ok {
			*into = append(*into, r.en)
		}
	}
	return nil
}

// entry reads one contender.
func (in *inspector) entry(sub string, c recipe.Contender) (Entry, bool, error) {
	en := Entry{Node: sub + c.Name, Mode: fence.Exclusive, Maker: makerNames[c.Maker]}
	switch c.Kind {
	case recipe.RoleRead:
		en.Mode = fence.Shared
	case recipe.RoleLease:
		en.Mode = fence.Permit
	}
	path := join(in.q.Path, en.Node)
	if strings.HasPrefix(sub, "/") { // kazoo's semaphore has its queue elsewhere
		path = en.Node
	}
	n, err := in.e.get(in.ctx, path)
	if errors.Is(err, zk.ErrNoAuth) {
		var st *zk.Stat
		switch st, err = in.e.exists(in.ctx, path); {
		case errors.Is(err, zk.ErrNoAuth):
			err = nil
		case err == nil && st == nil:
			err = zk.ErrNoNode
		case err == nil:
			n.Stat = *st
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		return en, false, nil
	}
	if err != nil {
		return en, false, err
	}
	data, st := n.Data, n.Stat
	en.Session, en.Token, en.WaitingSince = st.EphemeralOwner, fence.Token(st.Czxid), time.UnixMilli(st.Ctime)
	if c.Kind == recipe.RoleLease {
		en.HeldSince = en.WaitingSince // a permit's node is made by its grant
	}
	if o, ok := recipe.ParseOwner(data); ok {
		en.Owner = &o
		if o.Held {
			en.HeldSince = time.UnixMilli(st.Mtime)
		}
	} else {
		en.Raw = strings.ToValidUTF8(string(data[:min(len(data), maxRaw)]), "\uFFFD")
	}
	return en, true, nil
}
