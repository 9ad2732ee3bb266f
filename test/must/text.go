package must

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// Text is the output of a program, or a log. One goroutine may read it while another writes it.
type Text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *Text) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(b)
}

func (x *Text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// Await waits until the text has this part. The test ends if it takes longer than a minute.
func (x *Text) Await(t testing.TB, part string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(x.String(), part); {
		time.Sleep(2 * time.Millisecond)
		if time.Now().After(end) {
			t.Fatalf("no %q in %q", part, x.String())
		}
	}
}
