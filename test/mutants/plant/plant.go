// Package plant reads planted bugs, and applies them to the sources of a build by go's option -overlay. See
// package mutants.
package plant

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Bug is one planted bug.
type Bug struct {
	Name, About string
	Catches     *regexp.Regexp
	Pkg, Test   string
	Seed, Seeds int
	Short       bool
	Long        string // the length of the simulated day that shows the bug; empty: no such day is needed
	NoProbes    bool   // run without probes, which would notice the bug before the check that must catch it
	edits       []edit
}

// edit replaces one text of a file by another.
type edit struct{ file, old, new string }

// Load reads the file of a planted bug.
func Load(path string) (m Bug, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	m = Bug{Name: strings.TrimSuffix(filepath.Base(path), ".txt"), Pkg: "./test/sim", Test: "Histories",
		Seed: 1, Seeds: 6}
	parts := strings.Split("\n"+string(b), "\n== ")
	for i, line := range strings.Split(strings.TrimSpace(parts[0]), "\n") {
		key, value, found := strings.Cut(line, ": ")
		switch {
		case i == 0:
			m.About = line
		case !found:
			return m, fmt.Errorf("%s: line %q", path, line)
		case key == "catches":
			m.Catches, err = regexp.Compile(value)
		case key == "run":
			if m.Test = value; strings.Contains(value, " ") {
				m.Pkg, m.Test, _ = strings.Cut(value, " ")
			}
		case key == "seeds":
			_, err = fmt.Sscan(value, &m.Seed, &m.Seeds)
		case key == "short":
			m.Short = value == "yes"
		case key == "long":
			m.Long = value
		case key == "probes":
			m.NoProbes = value == "no"
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return m, fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, part := range parts[1:] {
		file, body, _ := strings.Cut(part, "\n")
		for _, change := range strings.Split("\n"+body, "\n-- old\n")[1:] {
			was, is, found := strings.Cut(change, "\n-- new")
			if !found {
				return m, fmt.Errorf("%s: an edit of %s has no new text", path, file)
			}
			m.edits = append(m.edits, edit{strings.TrimSpace(file), was,
				strings.TrimPrefix(strings.TrimSuffix(is, "\n"), "\n")})
		}
	}
	if m.Catches == nil || len(m.edits) == 0 {
		return m, fmt.Errorf("%s: it catches nothing or edits nothing", path)
	}
	return m, nil
}

// Texts returns the edited files below `root`, by their paths.
func (m *Bug) Texts(root string) (map[string]string, error) {
	texts := map[string]string{}
	for _, e := range m.edits {
		path := filepath.Join(root, e.file)
		text, ok := texts[path]
		if !ok {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("the old text of the edit of %s occurs %d times, not once:\n%s", e.file, n, e.old)
		}
		texts[path] = strings.Replace(text, e.old, e.new, 1)
	}
	return texts, nil
}

// Overlay writes the edited files into `dir`, with the list for the go command, and returns the list's name.
func (m *Bug) Overlay(root, dir string) (string, error) {
	texts, err := m.Texts(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for path, text := range texts {
		to := filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, b, 0o600)
}
