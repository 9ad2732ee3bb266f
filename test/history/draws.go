package history

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// keptDraw is the shortest time for which a draw is remembered with its secret.
const keptDraw = time.Minute

// checkDraws checks K12, by the answers to requests that draw from rates.
func (c *checker) checkDraws() {
	granted := map[string][]int{} // indexes of the granted draws, by rate
	bySecret := map[[2]string][]int{}
	for i, r := range c.records {
		d := r.Draw
		if d == nil || !d.OK {
			continue
		}
		of := [2]string{d.Rate, d.Secret}
		before := bySecret[of]
		same := func(j int) bool { return c.records[j].Draw.At == d.At }
		if d.Secret == "" || !slices.ContainsFunc(before, same) {
			granted[d.Rate] = append(granted[d.Rate], i)
		}
		if d.Secret != "" {
			bySecret[of] = append(before, i)
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(bySecret), func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	}) {
		c.checkRepeated(bySecret[of])
	}
	for _, rate := range slices.Sorted(maps.Keys(granted)) {
		c.checkWindows(granted[rate])
	}
}

// checkRepeated checks the answers to the requests with one secret, all of which were granted.
func (c *checker) checkRepeated(draws []int) {
	for n, i := range draws {
		b := c.records[i].Draw
		for _, j := range draws[:n] {
			a := c.records[j].Draw
			switch apart := (b.At - a.At).Abs(); {
			case apart >= max(b.Per, keptDraw):
			case apart > 0:
				c.fail("K12", i, "it was made at another time, too: %v", c.records[j])
			case !a.Told && !b.Told:
				c.fail("K12", i, "it was made twice: %v", c.records[j])
			}
		}
	}
}

// checkWindows checks the draws from one rate, which all have the same limit and the same period.
func (c *checker) checkWindows(draws []int) {
	slices.SortStableFunc(draws, func(a, b int) int {
		return cmp.Compare(c.records[a].Draw.At, c.records[b].Draw.At)
	})
	for n, i := range draws {
		d := c.records[i].Draw
		if n < d.Limit {
			continue
		}
		if first := c.records[draws[n-d.Limit]].Draw; d.At-first.At < d.Per {
			c.fail("K12", i, "it is the draw after %d within %v: %v", d.Limit, d.At-first.At,
				c.records[draws[n-d.Limit]])
		}
	}
}
