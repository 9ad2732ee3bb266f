package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/test/sim/reached"
)

// finding explains why a seed failed.
type finding struct {
	Date   string
	Seed   uint64
	Ways   int    // how the failing run chose goroutines
	Class  string // a fault of the server, of the simulation or of the checker
	What   string
	Repair string // the commits that mended it
}

func readFindings(lines []byte) (list []finding, err error) {
	for line := range bytes.Lines(lines) {
		var f finding
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&f); err != nil {
			return nil, fmt.Errorf("%s: %w", found, err)
		}
		if f.Date == "" || f.Class == "" || f.What == "" || f.Repair == "" {
			return nil, fmt.Errorf("%s: seed %d needs a date, a class, what it found and its repair", found, f.Seed)
		}
		list = append(list, f)
	}
	return list, nil
}

// findings() returns the table of what seeds found.
func findings(lines []byte) (string, error) {
	list, err := readFindings(lines)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("\nWhat seeds found, in these campaigns and in `make sim-repeat`, and the commits that mended " +
		"it:\n\n| date | seed (ways) | class | what it found | repair |\n|---|---|---|---|---|\n")
	for _, f := range list {
		fmt.Fprintf(&b, "| %s | %d (%d) | %s | %s | %s |\n", f.Date, f.Seed, f.Ways, f.Class, f.What, f.Repair)
	}
	return b.String(), nil
}

// unexplained() returns the failed seeds of the ledger that no finding explains.
func unexplained(ledger, findings []byte) (seeds []uint64, err error) {
	list, err := readFindings(findings)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(ledger) {
		var e commit
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		for _, s := range e.Found {
			if !slices.ContainsFunc(list, func(f finding) bool { return f.Seed == s }) {
				seeds = append(seeds, s)
			}
		}
	}
	return seeds, nil
}

// missed() returns the rare states of a list that older runs of busy minutes reached and the newest did not.
// The newest runs are the last lines of the ledger that are at least as long as `hours` together. It returns
// an error if the ledger has less, because then nothing is known. Lines that count no states do not count. A
// state that is new on the list, and in no line yet, is not missed.
func missed(ledger []byte, list []string, hours float64) (states []string, err error) {
	lines := slices.Collect(bytes.Lines(ledger))
	seen, before := map[string]bool{}, map[string]bool{}
	for _, line := range slices.Backward(lines) {
		var e commit
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		if e.Profile != "" {
			continue
		}
		for state := range e.Reached {
			if hours > 0 {
				seen[state] = true
			} else {
				before[state] = true
			}
		}
		if len(e.Reached) > 0 {
			hours -= e.Hours
		}
	}
	if hours > 0 {
		return nil, fmt.Errorf("%s lacks %.1f hours of busy minutes with rare states: run make sim", source, hours)
	}
	for _, s := range list {
		if before[s] && !seen[s] && slices.ContainsFunc(reached.States, func(r reached.State) bool { return r.Name == s }) {
			states = append(states, s)
		}
	}
	return states, nil
}
