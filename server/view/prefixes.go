package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/server/view/look"
)

// Locks are counted by the prefix of their path. Only the first maxPrefixes prefixes, none longer than
// maxPrefix, have metrics of their own. Other locks are counted under "other".
const (
	maxPrefixes = 32
	maxPrefix   = 64
	otherPrefix = "other"
)

// prefixOf returns the prefix under which a lock is counted: the first part of its path, or "other" if that
// part is too long or not every client may list such names.
func prefixOf(s *look.Scan, path string) string {
	if s.NoPrefixes {
		return otherPrefix
	}
	path = strings.ToValidUTF8(path, "\uFFFD")
	if i := strings.IndexByte(path[min(1, len(path)):], '/'); i >= 0 {
		path = path[:i+1]
	}
	if len(path) > maxPrefix {
		return otherPrefix
	}
	return path
}

// label() returns the label under which the metric of a prefix is counted: the prefix, or "other" if too many
// prefixes have labels. The keys of `known` are the labels in use.
func label[V any](known map[string]V, prefix string) string {
	if _, ok := known[prefix]; !ok && places(known) >= maxPrefixes {
		return otherPrefix
	}
	return prefix
}

// places() returns how many prefixes have a label of their own.
func places[V any](known map[string]V) int {
	if _, ok := known[otherPrefix]; ok {
		return len(known) - 1
	}
	return len(known)
}

// sum() returns the figures of a prefix.
func (m *meter) sum(prefix string) *lockSum {
	sum := m.sums[prefix]
	if sum == nil {
		sum = new(lockSum)
		m.sums[prefix] = sum
	}
	return sum
}

// makeRoom makes room for new prefixes. It drops prefixes that have no locks, those first that have had none
// for the longest time, and adds their counts to "other".
func (m *meter) makeRoom(s *look.Scan) {
	here, fresh := map[string]bool{}, map[string]bool{}
	for i := range s.Locks {
		p := prefixOf(s, s.Locks[i].Path)
		if _, known := m.sums[p]; known {
			here[p] = true
		} else if len(fresh) < maxPrefixes && p != otherPrefix {
			fresh[p] = true
		}
	}
	need := places(m.sums) + len(fresh) - maxPrefixes
	if need <= 0 {
		return
	}
	empty := slices.DeleteFunc(slices.Collect(maps.Keys(m.sums)), func(p string) bool {
		return here[p] || p == otherPrefix
	})
	slices.SortFunc(empty, func(a, b string) int {
		return cmp.Or(m.sums[a].at.Compare(m.sums[b].at), strings.Compare(a, b))
	})
	for _, p := range empty[:min(need, len(empty))] {
		m.sum(otherPrefix).grants += m.sums[p].grants
		delete(m.sums, p)
	}
}
