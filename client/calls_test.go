package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// What may have happened is tried again, after a pause that grows; what certainly has not happened, or has,
// is not.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcomes := []error{errAgain, zk.ErrUncertain, zk.ErrConnectionLost, errAgain, fmt.Errorf("%w", errAgain)}
		for _, last := range []error{nil, zk.ErrNoNode} {
			n, began := 0, time.Now()
			err := again(t.Context(), func() error {
				if n++; n <= len(outcomes) {
					return outcomes[n-1]
				}
				return last
			})
			must.That(t, errors.Is(err, last) && n == len(outcomes)+1, "%v after %d", err, n)
			took := time.Since(began)
			must.That(t, took >= 3*time.Millisecond*3/4 && took <= 3*time.Millisecond*5/4, "after %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := 0
		err := again(ctx, func() error { n++; return zk.ErrUncertain })
		must.Is(t, err, context.DeadlineExceeded)
		must.That(t, n > 50 && n < 100, "%d tries in a minute", n)
		began := time.Now()
		must.OK(t, pause(t.Context(), time.Second))
		must.Equal(t, time.Since(began), time.Second)
		for n, want := range map[int]time.Duration{1: 50, 2: 100, 5: 800, 6: 1000, 15: 1000, 16: 1000,
			math.MaxInt: 1000} {
			d := backoff(n, 50*time.Millisecond, time.Second)
			want *= time.Millisecond
			must.That(t, d >= want*3/4 && d <= want*5/4, "%v before try %d", d, n)
		}
	})
}

// On a server without containers directories are lasting nodes, after one refusal.
func TestServerWithoutContainers(t *testing.T) {
	shared(t)
	const createContainer, unimplemented = 19, -6
	c, p := proxied(t)
	refused := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: createContainer, Do: faultproxy.Refused,
		Code: unimplemented})
	o, d := observer(t), dir(t)
	asked := 0
	for i, path := range []string{d + "/a", d + "/b/c"} {
		l := lock(t, c.Mutex(path).Lock)
		_, st := must.Get2(o.Get(path))(t)
		must.Equal(t, st.EphemeralOwner, 0, "owner of %s", path)
		unlock(t, l)
		if i == 0 { // once, and again if the answer overtakes that of a heartbeat
			asked = refused.Seen()
		}
		must.That(t, refused.Seen() == asked && asked > 0, "%d containers asked for after %d", refused.Seen(),
			asked)
	}
	must.That(t, c.noContainers.Load(), "it is not remembered")
}
