package measure

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// With the constant 0.99, the first of a thousand keys has an eighth of all operations.
func TestZipfPrefersTheFirstKeys(t *testing.T) {
	const n, draws = 1000, 100_000
	z, counts := NewZipf(n), make([]int, n)
	for range draws {
		counts[z.Next()]++ // a rank that is out of range panics
	}
	expect.That(t, counts[0] > draws/10 && counts[0] < draws/6, "the first: %d of %d", counts[0], draws)
	expect.That(t, counts[0] > counts[1] && counts[1] > counts[10] && counts[10] > counts[900], "%v", counts[:11])
}
