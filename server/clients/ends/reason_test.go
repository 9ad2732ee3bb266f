package ends

import (
	"fmt"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// Each reason that the log and the metrics show has a unique name.
func TestReasonsHaveNames(t *testing.T) {
	for why := Client; why < Reasons; why++ {
		t.Run(fmt.Sprint(int(why)), func(t *testing.T) {
			expect.That(t, why.String() != "", "reason %d has no name", why)
			expect.That(t, !slices.Contains(names[:why], why.String()), "another reason is %q, too", why)
		})
	}
}
