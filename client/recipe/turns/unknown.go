package turns

import (
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
)

// plainLock reports whether sequential nodes of an unknown library form a lock. They do if their names say
// so, or if the sessions of later nodes watch earlier nodes. A reader that sees no watches assumes a lock.
func plainLock(dir string, list []item, w Watches) bool {
	if _, blind := w.(Unseen); blind {
		return true
	}
	words := true
	for i := range list {
		words = words && list[i].Word
	}
	if words {
		return true
	}
	for i := 1; i < min(len(list), 8); i++ {
		if list[i].Session == list[i-1].Session {
			continue
		}
		if watching, _ := w.Watching(list[i].Session, recipe.Join(dir, list[i-1].Node.Name)); watching {
			return true
		}
	}
	return false
}

// someWatchers bounds how many watching sessions of one node count as waiters. allWatchers bounds how many of
// them become entries, over all locks; the others count only in Total. The server charges a session for its
// watches, but not for entries, which take several times as much memory.
const (
	someWatchers = 200
	allWatchers  = 10_000
)

// lone() handles nodes without a number. Such a node is a lock if its name says so, or if other sessions
// watch it. But a session that watches several nodes of a directory only observes them, and waits for none.
func (d *Dir) lone(list []item, w Watches, left *int) []recipe.Queue {
	var found []recipe.Queue
	if len(list) == 1 && len(d.Nodes) == 1 && list[0].Node.Name == recipe.SimpleName {
		it := &list[0]
		if _, ours := it.e.Record(); ours || len(w.Watchers(d.Path, 1)) > 0 {
			return []recipe.Queue{simple(d.Path, it, w.Watchers(d.Path, someWatchers), d.Next, left)}
		}
	}
	watchers := make([][]int64, len(list))
	watched := map[int64]int{}
	for i := range list {
		if list[i].Layout != recipe.LayoutLone {
			continue
		}
		watchers[i] = w.Watchers(recipe.Join(d.Path, list[i].Node.Name), someWatchers)
		for _, s := range watchers[i] {
			watched[s]++
		}
	}
	for i := range list {
		it := &list[i]
		if it.Layout != recipe.LayoutLone {
			continue
		}
		_, named := recipe.PlainRole(it.Node.Name)
		losers := slices.DeleteFunc(watchers[i], func(s int64) bool {
			return s == it.Session || watched[s] > 1 &&
				!named
		})
		if !named && len(losers) == 0 {
			continue // the name shows no lock, and no other session waits
		}
		it.e.Node = ""
		found = append(found, simple(recipe.Join(d.Path, it.Node.Name), it, losers, 0, left))
	}
	return found
}

// simple() returns a lock of one node. Its waiters have no node, only a watch; `left` is how many more
// waiters may become entries.
func simple(path string, it *item, watchers []int64, next int32, left *int) recipe.Queue {
	q := recipe.Queue{Lock: recipe.Lock{Path: path, Kind: recipe.KindSimple,
		Layouts: []recipe.Layout{recipe.LayoutLone}, Next: next, Total: 1}}
	it.e.HeldSince = it.Ctime // the grant made the node
	q.Holders = []recipe.Entry{it.e}
	for _, s := range watchers {
		if s == it.Session {
			continue
		}
		if q.Total++; *left > 0 {
			*left--
			q.Waiters = append(q.Waiters, recipe.Entry{
				Layout: recipe.LayoutLone, Mode: recipe.Exclusive, Session: recipe.Session(s),
				BlockedBy: []string{it.e.Node}, Watch: true,
			})
		}
	}
	return q
}
