package main

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/zlockd/zlockd/test/bench/measure"
)

// outcome is the result of all rounds of a point. Each round lists the samples of all sides, with nil for a
// side that cannot measure the point.
type outcome struct {
	rounds [][]*sample
	// `equal` holds the rounds in which all sides run at the same rate. This is half the rate that the slower
	// of the compared sides reaches.
	equal [][]*sample
	rate  float64
	notes []string
}

// measurePoint measures a point on all sides in turn: A B, B A, A B and so on.
func (c *config) measurePoint(p point, sides []*side) (out outcome, err error) {
	for _, s := range sides {
		if p.alone {
			s.rest()
		} else if err := s.ensure(); err != nil {
			return out, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	var errs []error
	over := make([]bool, len(sides)) // by side: the side cannot measure the point, or its measurement failed
	end := func(i int, when string, err error) {
		over[i] = true
		sides[i].endOwn()
		if !errors.Is(err, errNotHere) {
			errs = append(errs, fmt.Errorf("%s%s: %w", sides[i].name, when, err))
		}
	}
	for i, s := range sides {
		switch {
		case s.floor != nil && !p.floor:
			over[i] = true
		case p.start != nil:
			defer s.endOwn()
			if s.own, err = p.start(c, s); err != nil {
				end(i, "", err)
			}
		case !p.alone && !p.once && c.level > 0:
			note, err := c.warmUp(p, s)
			if err != nil {
				end(i, ", warm-up", err)
			} else if note != "" {
				out.notes = append(out.notes, note)
			}
		}
	}
	inTurn := func(n int, run func(s *side) (sample, error)) (rounds [][]*sample) {
		for round := range n {
			row := make([]*sample, len(sides))
			for k := range sides {
				i := (k + round) % len(sides)
				if over[i] {
					continue
				}
				runtime.GC() // collect now, so that no later point pays for this point's garbage
				closed := func() error { return nil }
				if i == 0 && c.pages > 0 {
					closed = sides[0].look(c.pages)
				}
				got, err := run(sides[i])
				if cerr := closed(); err == nil {
					err = cerr
				}
				if err != nil {
					end(i, fmt.Sprintf(", round %d", round+1), err)
				} else {
					row[i] = &got
				}
			}
			rounds = append(rounds, row)
		}
		return rounds
	}
	n := c.rounds
	if p.once {
		n = 1
	}
	out.rounds = inTurn(n, func(s *side) (sample, error) { return p.run(c, s) })
	if out.rate = half(out.rounds, sides); p.at != nil && out.rate > 0 {
		out.equal = inTurn(n, func(s *side) (sample, error) { return p.at(c, s, out.rate) })
	}
	return out, errors.Join(errs...)
}

// half() returns half the rate of the slower compared side (not of the floor), or 0 if the rates are not
// known.
func half(rounds [][]*sample, sides []*side) float64 {
	least := math.Inf(1)
	for k, s := range sides {
		if s.floor == nil {
			least = min(least, of(rounds, k, func(s *sample) float64 { return s.metrics[0].value }))
		}
	}
	if math.IsInf(least, 0) || math.IsNaN(least) {
		return 0
	}
	return least / 2
}

// levelOps is the least number of operations that a side does before its rounds of a point begin.
const levelOps = 20_000

// warmUp runs a point on a side until the rate of the side is level, at least for c.level, because a JVM
// compiles for a long time. It gives up after 8*c.level, or after a minute if that is longer, and then
// returns a note.
func (c *config) warmUp(p point, s *side) (note string, err error) {
	const slice, within = 2 * time.Second, 0.05
	warm, duration := c.warm, c.duration
	defer func() { c.warm, c.duration = warm, duration }()
	c.warm, c.duration = 0, slice
	var rates []float64
	ops := int64(0)
	for begin := time.Now(); ; {
		out, err := p.run(c, s)
		if err != nil || out.ops == 0 {
			return "", err // a point without operations has nothing to warm up
		}
		ops += out.ops
		rates = append(rates, out.metrics[0].value)
		took := time.Since(begin)
		if took >= c.level && ops >= levelOps && len(rates) > 2 {
			last := rates[len(rates)-3:]
			spread := max(last[0], last[1], last[2])/min(last[0], last[1], last[2]) - 1
			if spread <= within {
				return "", nil
			}
			if took > max(8*c.level, time.Minute) {
				return fmt.Sprintf("* `%s`, %s: not level after %d operations in %v: the last three slices of %v "+
					"differ by %.0f %% (first %s, last %s)", p.name, s.name, ops, took.Round(time.Second), slice, 100*spread,
					number(rates[0]), number(measure.Median(last))), nil
			}
		}
	}
}
