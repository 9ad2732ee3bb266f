package state

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
)

// RateBounds bound the nodes that draws make: the nodes in the whole cluster, and the nodes of one identity.
// They are part of the request, so all servers apply the same bounds.
type RateBounds struct{ All, Identity int32 }

// begun is the list of the rates whose nodes were made by draws, so that no identity fills the tree with
// rates. A rate counts for the identity whose draw began it. It counts until its node is gone, whatever
// change removes the node.
type begun struct {
	by  map[string]beginning // by the path of the rate
	of  map[string]*beginner // by identity
	all int32                // nodes of all rates
}

// beginning is a rate that has begun. Nothing in it changes.
type beginning struct {
	of    *beginner
	nodes int32 // nodes that the rate's first draw made: the rate and its missing directories
}

// beginner is an identity that began rates.
type beginner struct {
	name  string
	nodes int32
}

// RateNodes returns how many nodes the rates of the cluster have, as counted for RateBounds.All.
func (s *State) RateNodes() int { return int(s.begun.all) }

// tooMany says which bound would be exceeded if a draw made this many more nodes.
func (g *begun) tooMany(d *Draw, nodes int32) string {
	own := int32(0)
	if of := g.of[d.Identity]; of != nil {
		own = of.nodes
	}
	const text = "the rates %s have %d nodes, including their directories: this rate needs %d more, and " +
		"no more than %d are allowed"
	switch b := d.RateBounds; {
	case nodes > b.All-g.all:
		return fmt.Sprintf(text, "of the cluster", g.all, nodes, b.All)
	case nodes > b.Identity-own:
		return fmt.Sprintf(text, "of this identity", own, nodes, b.Identity)
	}
	return ""
}

// add() records a new rate and how many nodes its draw made.
func (g *begun) add(path, identity string, nodes int32) {
	if g.by == nil {
		g.by, g.of = map[string]beginning{}, map[string]*beginner{}
	}
	of := g.of[identity]
	if of == nil {
		of = &beginner{name: identity}
		g.of[identity] = of
	}
	g.by[path] = beginning{of, nodes}
	of.nodes += nodes
	g.all += nodes
}

// forget() drops the rates whose nodes a change has removed.
func (g *begun) forget(events []tree.Event) {
	if len(g.by) == 0 {
		return
	}
	for i := range events {
		if events[i].Type != jute.EventDeleted {
			continue
		}
		b, known := g.by[events[i].Path]
		if !known {
			continue
		}
		delete(g.by, events[i].Path)
		g.all -= b.nodes
		if b.of.nodes -= b.nodes; b.of.nodes == 0 {
			delete(g.of, b.of.name)
		}
	}
}

// A snapshot contains the rates after the tickets, in the order of their paths:
//
//	rate := path string · identity string · nodes i32

// appendRates appends the encoding of rates.
func appendRates(b []byte, rates map[string]beginning) []byte {
	for _, path := range slices.Sorted(maps.Keys(rates)) {
		r := rates[path]
		b = jute.AppendInt(jute.AppendString(jute.AppendString(b, path), r.of.name), r.nodes)
	}
	return b
}

// load() reads the rates to the end of their encoding.
func (g *begun) load(d *jute.Decoder) error {
	last := ""
	for len(d.Rest()) > 0 {
		path, _ := d.String()
		identity, _ := d.String()
		nodes := d.Int()
		if d.Err() != nil || path <= last || nodes < 1 || nodes > bounds.MaxDepth || g.all > 1<<30 {
			return cmp.Or(d.Err(), errors.New("state: impossible rate"))
		}
		last = strings.Clone(path)
		g.add(last, strings.Clone(identity), nodes)
	}
	return nil
}
