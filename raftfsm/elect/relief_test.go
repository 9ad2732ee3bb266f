package elect

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A disk hangs when a write takes longer than a second and a half, and longer
// than writes have taken lately.
func TestReliefKnowsSlowDisksFromHangingOnes(t *testing.T) {
	r := new(Relief)
	call := uint64(0)
	write := func(d time.Duration) (gaveUp time.Duration) {
		call++
		r.look(call)
		for at := reliefLook; at <= d; at += reliefLook {
			if r.look(call) && gaveUp == 0 {
				gaveUp = at
			}
		}
		r.look(0)
		return gaveUp
	}
	for range 40 {
		must.Equal(t, write(time.Second), 0, "a write of a second was taken for a hanging one after")
		for range 90 {
			r.look(0)
		}
	}
	if at := write(4 * time.Second); at < reliefLeast || at > 2*time.Second {
		t.Errorf("a write of 4 s was noticed after %v", at)
	}
	expect.Equal(t, write(4*time.Second), 0, "the second write of 4 s was noticed after")
	if at := write(8 * time.Second); at < 4*time.Second || at > reliefMost+time.Second {
		t.Errorf("a write of 8 s was noticed after %v", at)
	}
	for range 2 * reliefSpan {
		r.look(0)
	}
	if at := write(4 * time.Second); at < reliefLeast || at > 2*time.Second {
		t.Errorf("a minute later a write of 4 s was noticed after %v", at)
	}
}
