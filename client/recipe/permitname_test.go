package recipe

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// The number of permits is a number, as kazoo writes it, or in a record.
func TestNumberOfPermits(t *testing.T) {
	for data, want := range map[string]int{"": 0, "3": 3, "0": 0, "-3": 0, "999999999": 999999999,
		"1234567890": 0, "three": 0, `{"zl":1,"limit":3}`: 3, `{"zl":1,"limit":-3}`: 0, `{"zl":2,"limit":3}`: 0} {
		expect.Equal(t, LimitOf(data), want, "%q", data)
	}
	permit := NewID(1, 2).Hex()
	for data, want := range map[string]bool{"2": true, "0": false, "-2": false, "two": false} {
		expect.Equal(t, IsKazooSemaphore([]string{permit}, data), want, "%q", data)
		expect.Equal(t, IsKazooSemaphore(nil, data), want, "%q without permits", data)
		expect.That(t, !IsKazooSemaphore([]string{permit, "lock"}, data), "%q beside another node", data)
	}
}
