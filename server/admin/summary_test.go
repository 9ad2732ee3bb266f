package admin

import (
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

// A bucket stands for the middle of the values that are counted in it.
func TestBucketsStandForTheirMiddle(t *testing.T) {
	last, low := 0, int64(0)
	for v := int64(1); v < 1<<16; v++ {
		b := bucketOf(v)
		if b == last {
			continue
		}
		must.Equal(t, b, last+1, "%d is in bucket %d, behind %d", v, b, last)
		if got, want := valueOf(last), low+(v-low)/2; got != want {
			t.Errorf("bucket %d of %d to %d stands for %d, not %d", last, low, v-1, got, want)
		}
		last, low = b, v
	}
}
