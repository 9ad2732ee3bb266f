package recipe

import (
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// The number of permits is stored as a plain number, as kazoo writes it, or in a record.
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

// The number of a permit is in its name, if package client made it.
func TestSlotsOfPermits(t *testing.T) {
	id := NewID(1, 2)
	name := PermitName(id, 17)
	expect.Equal(t, SlotOf(name), 17)
	expect.Equal(t, SlotOf(PermitName(id, 0)), 0, "a permit without a number")
	for c := byte('0'); c <= 'f'; c++ {
		want := 0
		if strings.IndexByte("89ab", c) >= 0 {
			want = 17
		}
		at := len("_c_") + 19 // the variant of the id
		expect.Equal(t, SlotOf(name[:at]+string(c)+name[at+1:]), want, "variant %c", c)
	}
	end := len(name) - len("-lease-")
	for _, at := range []int{0, len("_c_") + 14, len("_c_") + 36, end, len(name) - 1} {
		expect.Equal(t, SlotOf(name[:at]+"x"+name[at+1:]), 0, "with an x at %d of %s", at, name)
	}
}
