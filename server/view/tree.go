package view

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/tree"
)

// statRow is the stat of a node, as every client can read it.
type statRow struct {
	Kind       string `json:"kind"` // plain, ephemeral, container or ttl
	Czxid      string `json:"czxid"`
	Mzxid      string `json:"mzxid"`
	Pzxid      string `json:"pzxid"`
	Created    int64  `json:"created"` // ms since 1970
	Modified   int64  `json:"modified"`
	Version    int32  `json:"version"`
	Session    string `json:"session,omitempty"` // id of the session of an ephemeral node
	DataLength int32  `json:"dataLength"`
	Children   int32  `json:"children"`
}

var nodeKinds = map[tree.NodeKind]string{tree.PlainNode: "plain", tree.EphemeralNode: "ephemeral",
	tree.ContainerNode: "container", tree.TTLNode: "ttl"}

func statOf(kind tree.NodeKind, s *jute.Stat) statRow {
	r := statRow{
		Kind: nodeKinds[kind], Czxid: report.Hex(s.Czxid), Mzxid: report.Hex(s.Mzxid), Pzxid: report.Hex(s.Pzxid),
		Created: s.Ctime, Modified: s.Mtime,
		Version: s.Version, DataLength: s.DataLength, Children: s.NumChildren,
	}
	if s.EphemeralOwner != 0 && kind == tree.EphemeralNode {
		r.Session = report.Hex(s.EphemeralOwner)
	}
	return r
}

type childRow struct {
	Name string `json:"name"`
	Href string `json:"href"`
	statRow
}

type nodeAnswer struct {
	V    int     `json:"v"`
	Path string  `json:"path"`
	Stat statRow `json:"stat"`
	// Children are sorted by name. The list begins after the name that the parameter `after` gives.
	Children  []childRow `json:"children"`
	More      bool       `json:"more,omitempty"`
	Hidden    int        `json:"hidden,omitempty"` // number of children that not every client may list
	Truncated string     `json:"truncated,omitempty"`
	// The answer contains the data if the request asks for it and world:anyone may read it. The data is in
	// Text, or in base 64 if it is not text.
	Text     *string `json:"text,omitempty"`
	Base64   string  `json:"base64,omitempty"`
	DataNote string  `json:"dataNote,omitempty"`
}

// maxData is how many bytes of a node's data an answer shows.
const maxData = 1 << 20

// childrenAtOnce is how many children are read under one hold of the state lock.
const childrenAtOnce = 1024

// oneNode answers /tree/PATH.
func (v *View) oneNode(ctx context.Context, q *ask.Query) (any, error) {
	wantData, after, limit := q.Flag("data"), q.Text("after"), q.Number("limit", 100, 1, ask.MaxPage)
	if err := q.Wrong(); err != nil {
		return nil, err
	}
	path := q.Path()
	a := nodeAnswer{V: ask.Version, Path: ask.Clip(path), Children: []childRow{}}
	var data string
	var kind tree.NodeKind
	var stat jute.Stat
	allowed, found, listed, lists := false, false, q.All, q.All
	ok := v.source.View(func(st *state.State) {
		listed = listed || st.Tree().Shows(path)
		n, ok := st.Tree().Find(path)
		if found = ok; !ok {
			return
		}
		lists = lists || n.ShowsNames()
		kind, stat = n.Kind(), n.Stat()
		if wantData {
			data, allowed = n.Data([]jute.ID{jute.WorldAnyone[0].ID})
		}
	})
	a.Stat = statOf(kind, &stat)
	switch {
	case !ok:
		return nil, ask.ErrNotServing
	case !listed:
		return nil, v.desk.NoName(1, "node is")
	case !found:
		return nil, ask.NotFound("there is no node %s", ask.Clip(path))
	case wantData && !allowed:
		a.DataNote = "world:anyone may not read it"
	case wantData:
		a.show(data)
	}
	if !lists {
		a.Hidden = int(stat.NumChildren)
		a.Truncated = port.NoNames(a.Hidden, "children are")
		return a, nil
	}
	err := v.children(ctx, path, after, limit, &a) // in a line of its own: `return` would copy `a` too early
	return a, err
}

// show() adds data to the answer: as text, or in base 64 if it is not text.
func (a *nodeAnswer) show(data string) {
	if len(data) > maxData {
		a.DataNote = "too long: " + ask.Thousands(len(data)) + " bytes, the first " +
			ask.Thousands(maxData) + " shown"
		data = data[:maxData]
		for len(data) > maxData-4 && !utf8.ValidString(data) {
			data = data[:len(data)-1]
		}
	}
	text := utf8.ValidString(data) && !strings.ContainsFunc(data, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r'
	})
	if text {
		a.Text = &data
		return
	}
	a.Base64 = base64.StdEncoding.EncodeToString([]byte(data))
}

// child is a child's name, kind and stat.
type child struct {
	name string
	kind tree.NodeKind
	stat jute.Stat
}

// children() lists the first `limit` children whose names come after the name `after`. It reads them in parts
// and forgets names that cannot be among the first, so that a node with very many children needs little
// memory.
func (v *View) children(ctx context.Context, path, after string, limit int, a *nodeAnswer) error {
	var walk tree.ChildWalk
	var kept []child
	byName := func(x, y child) int { return strings.Compare(x.name, y.name) }
	trim := func() {
		slices.SortFunc(kept, byName)
		kept = slices.CompactFunc(kept, func(x, y child) bool { return x.name == y.name })
		if len(kept) > limit {
			a.More = true
			kept = kept[:limit]
		}
	}
	last := "" // if not empty: a name after `last` cannot be among the first `limit`
	for more := true; more; {
		kept = slices.Grow(kept, childrenAtOnce) // before View, which holds the state lock
		ok := v.source.View(func(st *state.State) {
			n, ok := st.Tree().Find(path)
			if !ok {
				more = false
				return
			}
			more = walk.Next(n, childrenAtOnce, func(c tree.Ref) int {
				name := c.Name()
				if name <= after || last != "" && name > last {
					a.More = a.More || name > after
					return 1
				}
				kept = append(kept, child{name, c.Kind(), c.Stat()})
				return 1
			})
		})
		if !ok {
			return ask.ErrNotServing
		}
		if ctx.Err() != nil {
			return ask.ErrSlow
		}
		if len(kept) > 2*limit {
			trim()
			last = kept[len(kept)-1].name
		}
	}
	trim()
	for _, c := range kept {
		path := strings.TrimSuffix(path, "/") + "/" + c.name
		a.Children = append(a.Children, childRow{ask.Clip(c.name), ask.Href("/tree", path),
			statOf(c.kind, &c.stat)})
	}
	if a.More {
		a.Truncated = "too many: " + ask.Thousands(int(a.Stat.Children)) + " children, " +
			ask.Thousands(len(kept)) + " shown"
	}
	return nil
}
