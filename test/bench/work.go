package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// payload is the data of every node: 100 bytes.
var payload = []byte(strings.Repeat("0123456789", 10))

// The type one is a workload whose operation is one request.
type one struct {
	send func(c *wire.Pipe, slot int)
}

func (w one) start(c *wire.Pipe, slot int)         { w.send(c, slot) }
func (one) step(*wire.Pipe, int, *wire.Frame) bool { return true }
func nodes(dir string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%s/n%d", dir, i))
	}
	return list
}

// setWork writes 100 bytes to the slot's own node.
func setWork(paths []string) workload {
	return one{func(c *wire.Pipe, slot int) { c.Set(paths[slot], payload) }}
}

// getWork reads the slot's node.
func getWork(paths []string) workload {
	return one{func(c *wire.Pipe, slot int) { c.Get(paths[slot], false) }}
}

// existsWork checks the slot's node.
func existsWork(paths []string) workload {
	return one{func(c *wire.Pipe, slot int) { c.Exists(paths[slot], false) }}
}

// mixedWork reads four times and writes once.
func mixedWork(paths []string) workload {
	n := 0
	return one{func(c *wire.Pipe, slot int) {
		if n++; n%5 == 0 {
			c.Set(paths[slot], payload)
		} else {
			c.Get(paths[slot], false)
		}
	}}
}

// createWork creates persistent nodes with names of its own.
type createWork struct {
	dir string
	n   int
}

func (w *createWork) path(i int) string { return w.dir + "/c" + strconv.Itoa(i) }

// remove() deletes the nodes that exist by now.
func (w *createWork) remove(c *wire.Pipe) error {
	n := w.n
	w.n = 0
	return bulk(c, n, func(i int) { c.Delete(w.path(i)) }, jute.OK)
}

func (w *createWork) start(c *wire.Pipe, _ int) {
	c.Create(w.path(w.n), payload, jute.FlagPersistent)
	w.n++
}

func (w *createWork) step(*wire.Pipe, int, *wire.Frame) bool { return true }

// lockWork is the uncontended lock cycle of every recipe: an ephemeral sequential node in the
// slot's lock directory, the list of contenders, and the release.
type lockWork struct {
	dirs  []string
	mine  []string // the slot's node; empty before it is known
	phase []int
}

func newLockWork(dirs []string) workload {
	return &lockWork{dirs, make([]string, len(dirs)), make([]int, len(dirs))}
}

func (w *lockWork) start(c *wire.Pipe, slot int) {
	w.phase[slot] = 0
	c.Create(w.dirs[slot]+"/lock-", nil, jute.FlagEphemeralSequential)
}

func (w *lockWork) step(c *wire.Pipe, slot int, r *wire.Frame) bool {
	w.phase[slot]++
	switch w.phase[slot] {
	case 1:
		w.mine[slot] = strings.Clone(r.Text())
		c.Children(w.dirs[slot], false)
	case 2:
		c.Delete(w.mine[slot])
	case 3:
		return true
	}
	return false
}

// makeNodes creates nodes over c, with many requests in flight at once.
func makeNodes(c *wire.Pipe, paths []string) error {
	return bulk(c, len(paths), func(i int) { c.Create(paths[i], payload, 0) }, jute.OK)
}

// bulk() sends n requests with at most 200 in flight. Each answer must have one of the codes in `want`.
func bulk(c *wire.Pipe, n int, send func(i int), want ...jute.ErrCode) error {
	const size = 200
	sent := 0
	for got := 0; got < n; {
		for ; sent < n && sent < got+size; sent++ {
			send(sent)
		}
		if err := c.Flush(); err != nil {
			return err
		}
		// Send again only when half of the answers have come, so that each write to the socket carries many
		// requests.
		for low := max(0, sent-size/2); got < sent && (got < low || sent == n); {
			r, err := c.Next()
			if err != nil {
				return err
			}
			if r.Event != nil {
				continue
			}
			if !slices.Contains(want, r.Code) {
				return fmt.Errorf("request %d of %d: %w", got, n, r.Code)
			}
			got++
		}
	}
	return nil
}

// removeTree deletes the children of a directory, which have no children themselves, and then the directory.
func removeTree(c *wire.Pipe, dir string) error {
	c.Sync(dir)
	if _, err := c.Do(); err != nil {
		return err
	}
	c.Children(dir, false)
	r, err := c.Do()
	if err != nil {
		return err
	}
	d := jute.NewDecoder(r.Body)
	names, _ := d.Strings()
	paths := make([]string, 0, len(names)+1)
	for _, n := range names {
		paths = append(paths, dir+"/"+n)
	}
	paths = append(paths, dir)
	// Another client may have removed some of these nodes: even after a sync, a follower of ZooKeeper may
	// still list them. So NoNode is accepted.
	return bulk(c, len(paths), func(i int) { c.Delete(paths[i]) }, jute.OK, jute.NoNode)
}
