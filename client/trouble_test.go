package client

import (
	"context"
	stdlog "log"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

func TestDialSaysAtOnceWhyThereIsNoSession(t *testing.T) {
	leakCheck(t)
	old, out, flags := slog.Default(), stdlog.Writer(), stdlog.Flags()
	defer func() {
		slog.SetDefault(old)
		stdlog.SetOutput(out) // SetDefault redirected package log, so show again what log.Fatal writes
		stdlog.SetFlags(flags)
	}()
	var log must.Text
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	dead := must.Refused(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := Dial(ctx, dead)
		done <- err
	}()
	eventually(t, "the cause in the log", func() bool {
		s := log.String()
		return strings.Contains(s, "level=WARN") && strings.Contains(s, dead) && strings.Contains(s, "refused")
	})
	not(t, "Dial gives up", done, 10*time.Millisecond)
	cancel()
	err := soon(t, "Dial to end", done)
	must.Is(t, err, context.Canceled)
	must.Has(t, err.Error(), "refused")
	must.Equal(t, strings.Count(log.String(), "refused"), 1, "how often the cause is in\n%s", log.String())
}

// Close waits for requests that were under way when the context of a call ended: a creation and a release.
func TestCloseWaitsForRequestsUnderWay(t *testing.T) {
	t.Parallel()
	shared(t)
	o := observer(t)
	for _, op := range []int32{faultproxy.OpCreate2, faultproxy.OpDelete} {
		for _, waits := range []bool{true, false} {
			d := dir(t)
			c, p := proxied(t)
			unlock(t, lock(t, c.Mutex(d).Lock))
			held := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: op, Under: d, Nth: 1, Do: faultproxy.Hold})
			ctx, cancel := context.WithCancel(testCtx(t))
			ended := make(chan error, 1)
			go func() {
				l, err := c.Mutex(d).Lock(ctx)
				if err == nil {
					err = l.Unlock(ctx)
				}
				ended <- err
			}()
			soon(t, "the request", held.Acted())
			cancel()
			wantErr(t, soon(t, "the call", ended), context.Canceled)
			if waits {
				closed := make(chan error, 1)
				go func() { closed <- c.Close(testCtx(t)) }()
				eventually(t, "the client to close", func() bool { return c.keeper.Calls().Err() != nil })
				held.Release()
				expect.OK(t, soon(t, "Close", closed))
				expect.Equal(t, len(names(t, o, d)), 0, "nodes left")
			} else {
				short, stop := context.WithTimeout(testCtx(t), 10*time.Millisecond)
				expect.Is(t, c.Close(short), context.DeadlineExceeded)
				stop()
			}
		}
	}
}
