package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/test/mutants/plant"
	"github.com/zlockd/zlockd/test/sim/reached"
)

// servers() returns changed copies of the servers' files, by their paths: with the planted bugs, and with
// calls that count rare states.
func servers(plants []string) (map[string]string, error) {
	texts := map[string]string{}
	for _, p := range plants {
		bug, err := plant.Load(p)
		if err != nil {
			return nil, err
		}
		planted, err := bug.Texts(".")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		maps.Copy(texts, planted)
	}
	packages := map[string]string{}
	for i, s := range reached.States {
		text, ok := texts[s.File]
		if !ok {
			b, err := os.ReadFile(s.File)
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		place := strings.Replace(s.Place, "@", "", 1)
		if n := strings.Count(text, place); n != 1 {
			if len(plants) > 0 {
				continue // the planted bug has replaced the text to which the call belongs
			}
			return nil, fmt.Errorf("%q has its place %d times in %s, instead of once", s.Name, n, s.File)
		}
		call := fmt.Sprintf("simReached(%d)", i)
		if s.When != "" {
			call = fmt.Sprintf("if %s {\n%s\n}", s.When, call)
		}
		texts[s.File] = strings.Replace(text, place, strings.Replace(s.Place, "@", call+"\n", 1), 1)
		name, _, _ := strings.Cut(text[strings.Index(text, "\npackage ")+len("\npackage "):], "\n")
		packages[path.Dir(s.File)] = strings.TrimSpace(name)
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		texts[dir+"/sim_reached.go"] = "package " + packages[dir] + `

import "github.com/zlockd/zlockd/test/sim/reached"

func simReached(state int) { reached.At(state) }
`
	}
	return texts, nil
}
