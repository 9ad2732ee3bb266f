package turns

import (
	"fmt"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A contender gets its permits if so many are free. It never gets more than the semaphore has.
func TestDecidePermits(t *testing.T) {
	for _, c := range []struct {
		limit, used, n int
		want           Do
		err            error
	}{
		{limit: 1, used: 0, n: 1, want: Grant}, {limit: 1, used: 1, n: 1, want: Wait},
		{limit: 3, used: 1, n: 2, want: Grant}, {limit: 3, used: 2, n: 2, want: Wait},
		{limit: 2, used: 5, n: 1, want: Wait}, // the limit was lowered
		{limit: 2, used: 0, n: 3, err: recipe.ErrInvalid},
	} {
		t.Run(fmt.Sprint(c.limit, c.used, c.n), func(t *testing.T) {
			got, err := DecidePermits(c.limit, c.used, c.n)
			expect.Is(t, err, c.err, "error")
			expect.Equal(t, got, c.want, "what is done")
		})
	}
}

// New permits get free numbers up to the limit, beginning with any of the free numbers.
func TestFreeNumbersOfPermits(t *testing.T) {
	var permits []string
	for _, slot := range []int{2, 4} {
		permits = append(permits, recipe.PermitName(recipe.NewID(1, 1), slot)+"0000000001")
	}
	for _, c := range []struct{ n, skip, first, last int }{
		{1, 0, 1, 1}, {1, 1, 3, 3}, {1, 2, 5, 5}, {1, 3, 1, 1}, {1, 7, 3, 3},
		{2, 0, 1, 3}, {2, 1, 3, 5}, {2, 2, 1, 3}, {3, 0, 1, 5}, {3, 9, 1, 5},
	} {
		got := FreeSlots(5, permits, c.n, c.skip)
		must.Equal(t, len(got), c.n, "numbers")
		expect.Equal(t, got[0], c.first, "the first of %d after %d: %v", c.n, c.skip, got)
		expect.Equal(t, got[c.n-1], c.last, "the last of %d after %d: %v", c.n, c.skip, got)
	}
	expect.Equal(t, len(FreeSlots(5, permits, 4, 0)), 0, "numbers where there are too few")
}
