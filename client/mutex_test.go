package client

import (
	"context"
	"sync"
	"testing"
	"time"
)

func TestMutexIsGrantedAndGivenBack(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, o, d := dial(t), observer(t), dir(t)
	l := lock(t, c.Mutex(d).Lock)
	if !l.Valid() || l.Err() != nil || l.Token() <= 0 {
		t.Fatalf("lease %v %v %v", l.Valid(), l.Err(), l.Token())
	}
	if n := names(t, o, d); len(n) != 1 {
		t.Fatalf("nodes %v", n)
	}
	if err := l.Check(context.Background()); err != nil {
		t.Fatal(err)
	}
	unlock(t, l)
	if n := names(t, o, d); len(n) != 0 {
		t.Fatalf("nodes left: %v", n)
	}
	if l.Valid() || l.Context().Err() == nil {
		t.Fatal("lease outlives Unlock")
	}
}

func TestMutexExcludesAndTokensGrow(t *testing.T) {
	addr(t)
	leakCheck(t)
	d := dir(t)
	ctx := testCtx(t)
	var mu sync.Mutex
	var last, inside int64
	var wg sync.WaitGroup
	for range 4 {
		c := dial(t)
		for range 2 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 20 {
					l, err := c.Mutex(d).Lock(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					inside++
					if inside != 1 || int64(l.Token()) <= last {
						t.Errorf("%d inside, token %d after %d", inside, l.Token(), last)
					}
					last = int64(l.Token())
					mu.Unlock()
					time.Sleep(100 * time.Microsecond)
					mu.Lock()
					inside--
					mu.Unlock()
					if err := l.Unlock(ctx); err != nil {
						t.Error(err)
					}
				}
			}()
		}
	}
	wg.Wait()
}
