package cli

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Nearest returns the known word that the user probably means: one that differs from `word` by one or two
// typing errors, or that begins like it. It returns "" if no word is near.
func Nearest(word string, known []string) string {
	typed := squeeze(word)
	if len(typed) < 2 {
		return ""
	}
	best, bestAt := "", 1+len(typed)/3
	for _, k := range known {
		if d := distance(typed, squeeze(k)); d < bestAt || d == bestAt && best == "" && d <= 2 {
			best, bestAt = k, d
		}
	}
	if best != "" {
		return best
	}
	for _, k := range known {
		if s := squeeze(k); len(typed) > 2 && strings.HasPrefix(s, typed) || len(s) > 3 &&
			strings.HasPrefix(typed, s) {
			return k
		}
	}
	for _, k := range known {
		if len(typed) > 3 && slices.Contains(strings.Split(k, "-"), typed) {
			return k
		}
	}
	return ""
}

// squeeze() removes the differences in how people write a word: case, dashes, underscores and dots.
func squeeze(s string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(s))
}

// distance() returns how many letters must be added, removed, changed, or swapped with the next letter to
// turn the word `a` into the word `b`.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	before, last, now := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}

// NearFlag returns the flag of the set that a mistyped name probably means. It returns "" if no flag is like
// the name.
func NearFlag(fs *pflag.FlagSet, name string, others map[string]string) string {
	if near := others[name]; near != "" && fs.Lookup(near) != nil {
		return near
	}
	var known []string
	fs.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	return Nearest(name, known)
}

// near() returns the command that a mistyped word probably means. It returns "" if no command is like the
// word.
func (p *Program[C]) near(word string) string {
	if near := p.OtherCommands[word]; near != "" {
		return near
	}
	var known []string
	for _, c := range p.Shown() {
		known = append(known, c.Name)
	}
	return Nearest(word, known)
}
