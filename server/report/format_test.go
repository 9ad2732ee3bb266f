package report

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

func TestNumbersAreJavas(t *testing.T) {
	for f, want := range map[float64]string{0: "0.0", 1.8177: "1.8177", 9333.66666: "9333.6667", 5: "5.0",
		-0.00001: "0.0", 1e21: "1000000000000000000000.0"} {
		got := Decimal(f)
		expect.Equal(t, got, want, "%v prints as %s", f, got)
	}
}
