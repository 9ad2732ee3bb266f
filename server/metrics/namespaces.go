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

// Namespaces collects sizes by the first part of a path. The zero value is ready. To look a name up takes no
// lock; to add one, the map is copied.
type Namespaces struct {
	mu sync.Mutex // held while a name is added
	m  atomic.Pointer[map[string]*Recorder]
}

// Observe records a number of bytes for a path. The root belongs to no namespace.
func (n *Namespaces) Observe(path string, bytes int64) {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if name == "" {
		return
	}
	if len(name) > maxNamespace {
		name = otherNamespaces
	}
	if m := n.m.Load(); m != nil {
		r := (*m)[name]
		if r == nil && len(*m) >= maxNamespaces-1 {
			r = (*m)[otherNamespaces]
		}
		if r != nil {
			r.Observe(bytes)
			return
		}
	}
	n.add(name).Observe(bytes)
}

func (n *Namespaces) add(name string) *Recorder {
	// Names that look the same as a label must share one count: Prometheus refuses two samples with one label.
	name = strings.ToValidUTF8(name, "\uFFFD")
	n.mu.Lock()
	defer n.mu.Unlock()
	old := map[string]*Recorder{}
	if p := n.m.Load(); p != nil {
		old = *p
	}
	if len(old) >= maxNamespaces-1 {
		name = otherNamespaces
	}
	if r := old[name]; r != nil {
		return r
	}
	fresh := maps.Clone(old)
	r := new(Recorder)
	fresh[strings.Clone(name)] = r
	n.m.Store(&fresh)
	return r
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
}
