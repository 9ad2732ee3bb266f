package locks

import (
	"encoding/json"
	"strconv"
	"strings"
)

// semaphore is its two directories, either of which may be empty.
type semaphore struct {
	path    string
	data    string
	permits *group
	queue   *group
}

func semaphoreAt(all map[string]*semaphore, path, data string) *semaphore {
	s := all[path]
	if s == nil {
		s = &semaphore{path: path, data: data}
		all[path] = s
	}
	return s
}

// limitOf reads how many permits there are: kazoo stores a number, package
// client a record, Curator nothing.
func limitOf(data string) int {
	if n, err := strconv.Atoi(data); err == nil && len(data) < 10 && n > 0 {
		return n
	}
	var rec struct {
		ZL    int `json:"zl"`
		Limit int `json:"limit"`
	}
	if len(data) < maxRecord && strings.HasPrefix(data, "{") && json.Unmarshal([]byte(data), &rec) == nil && rec.ZL == 1 {
		return max(rec.Limit, 0)
	}
	return 0
}

// allPermits tells whether the contenders are those of kazoo's semaphore: ids
// without a number.
func allPermits(list []entry) bool {
	for i := range list {
		if n := parseName(list[i].name); n.layout != Kazoo || n.mode != Permit {
			return false
		}
	}
	return true
}

// allLeases tells whether the contenders are named as Curator's permits.
func allLeases(list []entry) bool {
	for i := range list {
		if n := parseName(list[i].name); n.layout != Curator || n.mode != Permit {
			return false
		}
	}
	return true
}

// lock tells who has permits and who waits. The first of the queue waits for
// any permit, the others for the one before them.
func (s *semaphore) lock(w Watches) Queue {
	q := Queue{Path: s.path, Kind: Semaphore, Limit: limitOf(s.data)}
	permitDir, queueDir := "leases/", "locks/"
	var permits, queue []item
	if s.permits != nil {
		permits = items(s.permits)
		q.Total += s.permits.total
		q.Next = s.permits.next
	}
	if s.queue != nil {
		queue = items(s.queue)
		q.Total += s.queue.total
	}
	layout := Curator
	if s.permits != nil && s.permits.path == s.path || s.queue != nil && strings.HasSuffix(s.queue.path, "-__lock__") {
		layout = Kazoo
		permitDir, queueDir = "", s.path+"-__lock__/"
	}
	q.Layouts = []Layout{layout}
	pending := s.pending(permits, queue, q.Limit, w)
	for i := range permits {
		it := &permits[i]
		if i == pending {
			q.Total--
			continue
		}
		it.c.Node = permitDir + it.entry.name
		it.c.Mode, it.c.Held = Permit, it.ctime // made by the grant
		q.Holders = append(q.Holders, it.c)
	}
	for i := range queue {
		it := &queue[i]
		it.c.Node, it.c.Mode, it.c.Held = queueDir+it.entry.name, Permit, 0
		it.c.BlockedBy = []string{}
		if i > 0 {
			it.c.BlockedBy = []string{queueDir + queue[i-1].entry.name}
		} else {
			it.c.Any = true
			for j := range q.Holders {
				it.c.BlockedBy = append(it.c.BlockedBy, q.Holders[j].Node)
			}
		}
		q.Waiters = append(q.Waiters, it.c)
	}
	return q
}

// pending finds the permit that is not granted yet, -1 if there is none. In
// Curator's recipe the first of the queue makes the node of its permit, and
// then waits until there are few enough of them, watching the directory.
func (s *semaphore) pending(permits, queue []item, limit int, w Watches) int {
	if len(queue) == 0 || s.permits == nil || s.permits.path == s.path || limit > 0 && len(permits) <= limit {
		return -1
	}
	head := &queue[0]
	for i := len(permits) - 1; i >= 0; i-- {
		if permits[i].session != head.session || permits[i].czxid < head.czxid {
			continue
		}
		if watching, known := w.Watching(head.session, s.permits.path); known && !watching {
			return -1
		}
		return i
	}
	return -1
}
