package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// The text of an error begins with the prefix of the package, names the lock's path, and has the
// prefix of each package once.
func TestErrorsNameThePathAndEachPackageOnce(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, other, ctx, d := dial(t), dial(t), testCtx(t), dir(t)
	held := lock(t, c.Mutex(d+"/held").Lock)
	write := lock(t, c.RWMutex(d+"/rw").Lock)
	mine := held.Context()
	failure := errors.New("client: a failure of the program's own")
	refused := func(_ any, err error) error { return err }
	gone := lock(t, c.Mutex(d+"/gone").Lock)
	if err := other.Inspector().Break(ctx, d+"/gone", recipe.Base(gone.Node()), gone.Token()); err != nil {
		t.Fatal(err)
	}
	soon(t, "the loss", gone.Lost())
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	for path, e := range map[string]struct {
		err  error
		want error
	}{
		"/held try":      {refused(other.Mutex(d + "/held").TryLock(ctx)), ErrNotAcquired},
		"/held wait":     {refused(other.Mutex(d+"/held").Lock(ctx, WithWait(time.Millisecond))), ErrNotAcquired},
		"/held late":     {refused(other.Mutex(d + "/held").Lock(short)), context.DeadlineExceeded},
		"/held twice":    {refused(c.Mutex(d + "/held").TryLock(mine)), ErrSelfDeadlock},
		"/held negative": {refused(c.Mutex(d+"/held").Lock(ctx, WithWait(-1))), ErrInvalid},
		"/held down":     {held.Downgrade(ctx), ErrUnsupported},
		"/rw up":         {write.Upgrade(ctx), ErrUnsupported},
		"/none":          {refused(held.Txn(ctx, zk.Delete{Path: d + "/none", Version: -1})), zk.ErrNoNode},
		"/none break":    {c.Inspector().Break(ctx, d+"/none", "n", 1), ErrNotHeld},
		"/none revoke":   {c.Inspector().Revoke(ctx, d+"/none", "n", recipe.Revocation{}), ErrNotHeld},
		"/sem":           {refused(c.Semaphore(d+"/sem", 1).Acquire(ctx, 2)), ErrInvalid},
		"/sem limit":     {c.Semaphore(d+"/sem", 1).SetLimit(ctx, 0), ErrInvalid},
		"/bar":           {refused(c.DoubleBarrier(d+"/bar", 0).Enter(ctx)), ErrInvalid},
		"/elect":         {c.Election(d+"/elect").Proclaim(ctx, held, nil), ErrInvalid},
		"/held set":      {refused(other.TryAcquireAll(ctx, other.Mutex(d+"/a").Request(), other.Mutex(d+"/held").Request())), ErrNotAcquired},
		"/gone":          {gone.Check(ctx), ErrLost},
		"/gone unlock":   {gone.Unlock(ctx), ErrLost},
		"/do": {c.Mutex(d+"/do").Do(ctx, func(_ context.Context, l *Lease) error {
			if err := other.Inspector().Break(ctx, d+"/do", recipe.Base(l.Node()), l.Token()); err != nil {
				t.Error(err)
			}
			soon(t, "the loss", l.Lost())
			return failure
		}), failure},
		"127.0.0.1:1": {refused(Dial(short, "127.0.0.1:1")), context.DeadlineExceeded},
		"http":        {refused(Dial(ctx, "http://127.0.0.1:1")), ErrInvalid},
		"1.2s":        {refused(Dial(ctx, addr(t), WithSessionTimeout(1200*time.Millisecond))), ErrInvalid},
	} {
		names := strings.Fields(path)[0]
		if names[0] == '/' {
			names = d + names
		}
		if text := e.err.Error(); !errors.Is(e.err, e.want) || !strings.HasPrefix(text, "client: ") || !strings.Contains(text, names) ||
			strings.Count(text, "client: ") != 1 || strings.Count(text, "zk: ") > 1 || strings.Count(text, "fence: ") > 1 {
			t.Errorf("%s: %q", path, text)
		}
	}
	unlock(t, held)
	unlock(t, write)
}
