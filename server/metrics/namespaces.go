package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxNamespaces bounds the names that have counts of their own, because clients choose the names. Further
// names are counted together.
const (
	maxNamespaces   = 32
	maxNamespace    = 64       // the longest name that has its own count, in bytes
	otherNamespaces = "/other" // contains a slash, so no first part of a path is equal to it
)

// A name keeps its place while requests come for it. After the time `quiet` without a request, a new name may
// take the place.
const (
	quiet      = 10 * time.Minute
	looksApart = time.Minute // the time between two looks for a quiet name, while new names come
)

// Namespaces collects sizes by the first part of a path. The zero value is ready. Looking up a name needs no
// lock. Adding a new name copies the map.
type Namespaces struct {
	mu     sync.Mutex // held while a name is added
	m      atomic.Pointer[map[string]*Recorder]
	counts map[string]seenCount // what the last look for quiet names found
	next   atomic.Int64         // Unix time in ns of the next such look
}

// seenCount is how many sizes a name had, and since when it has had no more.
type seenCount struct {
	count int64
	since time.Time
}

// nameOf returns the name under which a path is counted. The root belongs to no namespace: its name is "".
func nameOf(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if len(name) > maxNamespace {
		return otherNamespaces
	}
	return name
}

// Observe records a number of bytes for a path. Only requests that succeed may call it: a client without
// rights must not take places by naming paths.
func (n *Namespaces) Observe(path string, bytes int64) {
	if name := nameOf(path); name != "" {
		n.ObserveNew(name, bytes)
	}
}

// ObserveKnown records a number of bytes for a path before it is known whether the request succeeds. If the
// path's name may get a place of its own, ObserveKnown records nothing, and returns a copy of that short
// name. Then ObserveNew must follow, once the request has succeeded.
func (n *Namespaces) ObserveKnown(path string, bytes int64) (fresh string) {
	name := nameOf(path)
	if name == "" || n.known(name, bytes, time.Now) {
		return ""
	}
	return strings.Clone(name)
}

// ObserveNew records a number of bytes for a name that ObserveKnown has returned.
func (n *Namespaces) ObserveNew(name string, bytes int64) {
	if !n.known(name, bytes, time.Now) {
		n.add(name, time.Now()).Observe(bytes)
	}
}

// known() records a number of bytes for a name that has a place, or that cannot have one now.
func (n *Namespaces) known(name string, bytes int64, now func() time.Time) bool {
	m := n.m.Load()
	if m == nil {
		return false
	}
	r := (*m)[name]
	if r == nil && len(*m) >= maxNamespaces-1 && now().UnixNano() < n.next.Load() {
		r = (*m)[otherNamespaces]
	}
	if r == nil {
		return false
	}
	r.Observe(bytes)
	return true
}

// add() returns the recorder for a name that has had none.
func (n *Namespaces) add(name string, now time.Time) *Recorder {
	// Two names with the same label must have one count, because Prometheus refuses two samples with the same
	// label.
	name = strings.ToValidUTF8(name, "\uFFFD")
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[string]*Recorder{}
	if p := n.m.Load(); p != nil {
		all = maps.Clone(*p)
	}
	if all[name] == nil && name != otherNamespaces && len(all) >= maxNamespaces-1 {
		if gone := n.quietName(all, now); gone != "" {
			delete(all, gone)
			delete(n.counts, gone)
		} else {
			n.next.Store(now.Add(looksApart).UnixNano())
			name = otherNamespaces
		}
	}
	if r := all[name]; r != nil {
		return r
	}
	r := new(Recorder)
	all[strings.Clone(name)] = r
	n.m.Store(&all)
	return r
}

// quietName returns the name that has had no request for the longest time, if that is at least `quiet`.
func (n *Namespaces) quietName(all map[string]*Recorder, now time.Time) (found string) {
	if n.counts == nil {
		n.counts = map[string]seenCount{}
	}
	longest := now.Add(-quiet)
	for name, r := range all {
		count := r.count.Load()
		seen, ok := n.counts[name]
		switch {
		case name == otherNamespaces:
		case !ok || seen.count != count:
			n.counts[name] = seenCount{count, now}
		case !seen.since.After(longest):
			found, longest = name, seen.since
		}
	}
	return found
}

// Values returns the recorded sizes of each name.
func (n *Namespaces) Values(now time.Time) map[string]Summary {
	out := make(map[string]Summary)
	if m := n.m.Load(); m != nil {
		for name, r := range *m {
			out[name] = r.Value(now, 1)
		}
	}
	return out
}

// HideNames removes the values of single namespaces. Only the value stays in which many are counted together.
func HideNames(values map[string]Summary) {
	maps.DeleteFunc(values, func(name string, _ Summary) bool { return name != otherNamespaces })
}

// Reset forgets everything.
func (n *Namespaces) Reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.m.Store(nil)
	n.counts = nil
	n.next.Store(0)
}
