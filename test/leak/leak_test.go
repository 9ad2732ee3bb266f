package leak

import (
	"sync"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// The first of two parallel tests leaves a goroutine behind. The goroutine counts only for the first test.
func TestGoroutineCountsForTheTestThatBeganIt(t *testing.T) {
	stop := make(chan struct{})
	var parts [2]string
	var tests sync.WaitGroup
	for i := range parts {
		tests.Go(func() {
			parts[i] = mark("test")
			if i == 0 {
				go func() { <-stop }()
			}
		})
	}
	tests.Wait()
	expect.Equal(t, len(left(parts[0], nil, 0)), 1, "goroutines of the first test")
	expect.Equal(t, len(left(parts[0], []string{"leak.TestGoroutineCounts"}, 0)), 0, "without the excepted")
	expect.Equal(t, len(left(parts[1], nil, 0)), 0, "goroutines of the second test")
	close(stop)
	expect.Equal(t, len(left(parts[0], nil, patience)), 0, "goroutines once they may end")
}
