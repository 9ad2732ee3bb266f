package turns

import (
	"slices"
	"strings"

	"github.com/zlockd/zlockd/client/recipe"
)

// semaphore holds the two directories of a semaphore; either may be empty.
type semaphore struct {
	path    string
	data    string
	permits *Dir
	queue   *Dir
}

func semaphoreAt(all map[string]*semaphore, path, data string) *semaphore {
	s := all[path]
	if s == nil {
		s = &semaphore{path: path, data: data}
		all[path] = s
	}
	return s
}

// allPermits reports whether the contenders have the names of a layout's permits: with kazoo, ids
// without a number.
func allPermits(list []recipe.Node, l recipe.Layout) bool {
	return !slices.ContainsFunc(list, func(n recipe.Node) bool {
		d := recipe.Describe(n.Name)
		return d.Layout != l || d.Kind != recipe.RoleLease
	})
}

// lock() returns the holders and waiters of the permits. The first contender of the queue waits for any
// permit, each later one for the contender before it.
func (s *semaphore) lock(w Watches) recipe.Queue {
	q := recipe.Queue{Lock: recipe.Lock{Path: s.path, Kind: recipe.KindSemaphore, Limit: recipe.LimitOf(s.data)}}
	permitDir, queueDir := "leases/", "locks/"
	var permits, queue []item
	if s.permits != nil {
		permits = items(s.permits)
		q.Unlisted = s.permits.Unlisted
		q.Total += s.permits.Total
		q.Next = s.permits.Next
	}
	if s.queue != nil {
		queue = items(s.queue)
		q.Unlisted = q.Unlisted || s.queue.Unlisted
		q.Total += s.queue.Total
	}
	layout := recipe.LayoutCurator
	if s.permits != nil && s.permits.Path == s.path || s.queue != nil &&
		strings.HasSuffix(s.queue.Path, recipe.KazooQueue) {
		layout = recipe.LayoutKazoo
		permitDir, queueDir = "", s.path+recipe.KazooQueue+"/"
	}
	q.Layouts = []recipe.Layout{layout}
	pending := s.pending(permits, queue, q.Limit, w)
	for i := range permits {
		it := &permits[i]
		if i == pending {
			q.Total--
			continue
		}
		it.e.Node = permitDir + it.Node.Name
		it.e.Mode, it.e.Slot = recipe.Permit, recipe.SlotOf(it.Node.Name)
		it.e.HeldSince = it.Ctime // the grant made the node
		q.Holders = append(q.Holders, it.e)
	}
	for i := range queue {
		it := &queue[i]
		it.e.Node, it.e.Mode, it.e.HeldSince = queueDir+it.Node.Name, recipe.Permit, 0
		it.e.BlockedBy = []string{}
		if i > 0 {
			it.e.BlockedBy = []string{queueDir + queue[i-1].Node.Name}
		} else {
			it.e.Any = true
			for j := range q.Holders {
				it.e.BlockedBy = append(it.e.BlockedBy, q.Holders[j].Node)
			}
		}
		q.Waiters = append(q.Waiters, it.e)
	}
	return q
}

// pending() returns the index of the permit that is not granted yet. It returns -1 if all permits are
// granted. In Curator's recipe the first contender of the queue makes the node of its permit. Then it watches
// the directory and waits until there are few enough permits. Package client counts before it makes a permit.
func (s *semaphore) pending(permits, queue []item, limit int, w Watches) int {
	if len(queue) == 0 || s.permits == nil || s.permits.Path == s.path {
		return -1
	}
	if do, err := DecidePermits(limit, len(permits)-1, 1); do == Grant && err == nil {
		return -1
	}
	head := &queue[0]
	for i := len(permits) - 1; i >= 0; i-- {
		p := &permits[i]
		if p.Session != head.Session || p.Czxid < head.Czxid || p.Maker == recipe.MakerSelf {
			continue
		}
		if watching, known := w.Watching(head.Session, s.permits.Path); known && !watching {
			return -1
		}
		return i
	}
	return -1
}
