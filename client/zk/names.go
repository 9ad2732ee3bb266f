package zk

import (
	"iter"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// Names is a list of children as it came from the server.
type Names struct {
	Stat Stat // of the parent
	n    int
	raw  []byte // n strings, each with its length before it; well formed
}

// readNames takes over the decoder's memory.
func readNames(d *jute.Decoder) Names {
	list := Names{n: max(d.Count(4), 0), raw: d.Rest()}
	start := d.Offset()
	for range list.n {
		d.Buffer()
	}
	list.raw = list.raw[:d.Offset()-start]
	list.Stat = d.Stat()
	return list
}

// Len returns the number of names.
func (l Names) Len() int { return l.n }

// All returns the names one after another. They share the memory of the list: clone a name that you
// keep for long.
func (l Names) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		d := jute.NewDecoder(l.raw)
		for range l.n {
			if name, _ := d.String(); !yield(name) {
				return
			}
		}
	}
}

// List returns the names as a slice with its own memory.
func (l Names) List() []string {
	if l.raw == nil {
		return nil
	}
	names := make([]string, 0, l.n)
	for name := range l.All() {
		names = append(names, strings.Clone(name))
	}
	return names
}
