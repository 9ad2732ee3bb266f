package turns

import (
	"fmt"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
)

// As many permits are granted as are free, and never more than there are.
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
