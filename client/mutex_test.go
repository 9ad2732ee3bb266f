package client

import (
	"context"
	"errors"
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

// What f makes of the end of its context must not hide why it ended.
func TestDoTellsTheLossWhateverFReturns(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, o := dial(t), observer(t)
	own := errors.New("own error")
	for name, end := range map[string]struct {
		f    func(context.Context, *Lease) error
		also error
	}{
		"nil":       {func(ctx context.Context, _ *Lease) error { <-ctx.Done(); return nil }, nil},
		"ctx.Err":   {func(ctx context.Context, _ *Lease) error { <-ctx.Done(); return ctx.Err() }, context.Canceled},
		"own error": {func(ctx context.Context, _ *Lease) error { <-ctx.Done(); return own }, own},
		"unlocked":  {func(ctx context.Context, l *Lease) error { <-ctx.Done(); l.Unlock(ctx); return own }, own},
	} {
		t.Run(name, func(t *testing.T) {
			d := dir(t)
			err := c.Mutex(d).Do(testCtx(t), func(ctx context.Context, l *Lease) error {
				if err := o.Delete(l.Node(), -1); err != nil {
					return err
				}
				return end.f(ctx, l)
			})
			var le *LostError
			if !errors.Is(err, ErrLost) || !errors.As(err, &le) || le.Reason != Removed || end.also != nil && !errors.Is(err, end.also) {
				t.Fatalf("%v", err)
			}
		})
	}
	if err := c.Mutex(dir(t)).Do(testCtx(t), func(ctx context.Context, l *Lease) error { l.Unlock(ctx); return own }); err != own {
		t.Fatalf("unlocked by f: %v", err)
	}
}
