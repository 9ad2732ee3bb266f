package oracle

import (
	"errors"
	"slices"
	"time"
)

// Shrink returns a short program that still shows a difference, and that difference. It
// removes steps while a difference remains, until it can remove no more or the time is up.
func (r *Runner) Shrink(p Program, found error, limit time.Duration) (Program, error) {
	end := time.Now().Add(limit)
	fails := func(q Program) bool {
		err := r.Run(q)
		var d *Difference
		if !errors.As(err, &d) {
			return false
		}
		found = err
		return true
	}
	if !fails(p) {
		return p, errors.Join(found, errors.New("the difference did not show again when the program was repeated"))
	}
	// Leave out half of the steps first, then smaller and smaller pieces, at last single steps.
	for size := (len(p) + 1) / 2; size > 0; {
		smaller := false
		for at := 0; at < len(p) && time.Now().Before(end); {
			q := without(p, at, min(at+size, len(p)))
			if fails(q) {
				p, smaller = q, true
			} else {
				at += size
			}
		}
		if time.Now().After(end) {
			break
		}
		switch {
		case size > 1:
			size = (size + 1) / 2
		case !smaller:
			size = 0
		}
	}
	p = r.simplify(p, fails, end)
	// Run the result again: the last run may have been one without a difference.
	if !fails(p) {
		return p, errors.Join(found, errors.New("the short program does not always show it"))
	}
	return p, found
}

// without() returns list without the elements from i to k.
func without[S ~[]E, E any](list S, i, k int) S { return slices.Delete(slices.Clone(list), i, k) }

// simplify() makes single steps simpler while the difference remains: it no longer joins requests to others,
// takes operations out of multis, and shortens the lists of setWatches.
func (r *Runner) simplify(p Program, fails func(Program) bool, end time.Time) Program {
	try := func(i int, s Step) bool {
		if time.Now().After(end) {
			return false
		}
		q := append(Program{}, p...)
		q[i] = s
		if !fails(q) {
			return false
		}
		p = q
		return true
	}
	for i := range p {
		if p[i].Joined {
			s := p[i]
			s.Joined = false
			try(i, s)
		}
		for k := 0; k < len(p[i].Ops); {
			s := p[i]
			s.Ops = without(s.Ops, k, k+1)
			if !try(i, s) {
				k++
			}
		}
		for l := range p[i].Lists {
			for k := 0; k < len(p[i].Lists[l]); {
				s := p[i]
				s.Lists[l] = without(s.Lists[l], k, k+1)
				if !try(i, s) {
					k++
				}
			}
		}
	}
	return p
}
