package sim

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var onlyFlag = flag.String("sim.only", "", `faults and requests that a run makes, as in "f:3,7-9 2:40-44": `+
	"numbers of faults, and of requests by the numbers of their clients; empty: all")

// selection has the numbers of the faults ("f"), and of the requests of each client, that a run makes; nil:
// all. The shrinking of a failing run uses it to keep the few faults and requests that matter.
type selection map[string][]span

// span is the numbers from first to last.
type span struct{ first, last int }

// parseSelection reads what String writes.
func parseSelection(text string) (selection, error) {
	if text == "" {
		return nil, nil
	}
	s := selection{}
	for _, group := range strings.Fields(text) {
		name, list, ok := strings.Cut(group, ":")
		if !ok {
			return nil, fmt.Errorf("%q has no colon", group)
		}
		for _, part := range strings.Split(list, ",") {
			if part == "" {
				continue
			}
			var r span
			if n, _ := fmt.Sscanf(part, "%d-%d", &r.first, &r.last); n == 0 {
				return nil, fmt.Errorf("%q is not a number", part)
			} else if n == 1 {
				r.last = r.first
			}
			s[name] = append(s[name], r)
		}
	}
	return s, nil
}

func mustSelect(t *testing.T, text string) selection { return must.Get(parseSelection(text))(t) }

// of() returns a function that reports whether a number of a group is selected. It returns nil if all numbers
// are selected.
func (s selection) of(group string) func(number int) bool {
	if s == nil {
		return nil
	}
	spans := s[group]
	return func(number int) bool {
		return slices.ContainsFunc(spans, func(r span) bool { return r.first <= number && number <= r.last })
	}
}

// item is one fault or request.
type item struct {
	group  string
	number int
}

// selected() formats items as a selection. The result is never empty, because an empty selection means all.
func selected(items []item) string {
	numbers := map[string][]int{}
	for _, i := range items {
		numbers[i.group] = append(numbers[i.group], i.number)
	}
	groups := []string{"f:"}
	for group, list := range numbers {
		slices.Sort(list)
		var parts []string
		for i := 0; i < len(list); {
			k := i + 1
			for k < len(list) && list[k] == list[k-1]+1 {
				k++
			}
			part := fmt.Sprint(list[i])
			if k > i+1 {
				part = fmt.Sprintf("%d-%d", list[i], list[k-1])
			}
			parts, i = append(parts, part), k
		}
		if text := group + ":" + strings.Join(parts, ","); group == "f" {
			groups[0] = text
		} else {
			groups = append(groups, text)
		}
	}
	slices.Sort(groups[1:])
	return strings.Join(groups, " ")
}

func TestSelectionsAreWrittenAndRead(t *testing.T) {
	text := selected([]item{{"2", 41}, {"f", 7}, {"2", 40}, {"f", 3}, {"0", 5}, {"2", 42}})
	must.Equal(t, text, "f:3,7 0:5 2:40-42", "a selection")
	s := mustSelect(t, text)
	for _, c := range []struct {
		item
		want bool
	}{{item{"f", 3}, true}, {item{"f", 4}, false}, {item{"2", 42}, true}, {item{"2", 43}, false},
		{item{"1", 0}, false}} {
		expect.Equal(t, s.of(c.group)(c.number), c.want, "%s:%d is selected", c.group, c.number)
	}
	expect.That(t, mustSelect(t, selected(nil)).of("f") != nil, "an empty selection is all")
	expect.That(t, mustSelect(t, "").of("f") == nil, "no selection is not all")
}
