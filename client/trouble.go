package client

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// troubles says why there is no connection: at once if no server can be used, and
// after a moment if some cannot and the others do not answer. What was said is not
// repeated until there was a connection.
type troubles struct {
	c *Client

	mu      sync.Mutex
	servers int // how many there are
	latest  map[string]error
	said    map[string]string
	timer   *time.Timer // nil while nothing waits to be said
}

// troublePatience is how long another server may take to make up for one that
// cannot be used.
const troublePatience = 300 * time.Millisecond

// add notes why a server could not be used.
func (t *troubles) add(server string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latest[server] = err
	switch {
	case len(t.latest) >= t.servers:
		t.say()
	case t.timer == nil:
		t.timer = time.AfterFunc(troublePatience, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.timer != nil {
				t.say()
			}
		})
	}
}

// say logs what is new. t.mu is held.
func (t *troubles) say() {
	t.stop()
	if t.c.isDraining() {
		return
	}
	for server, err := range t.latest {
		if text := err.Error(); t.said[server] != text {
			t.said[server] = text
			t.c.opt.log.Warn("no connection to server", "server", server, "err", err)
		}
	}
}

// stop ends the timer. t.mu is held.
func (t *troubles) stop() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// over is told of a connection.
func (t *troubles) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stop()
	clear(t.latest)
	clear(t.said)
}

// warnings passes on what a program should say that set no logger.
type warnings struct{ slog.Handler }

func (warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle gives the record to the default logger of the moment.
func (warnings) Handle(ctx context.Context, r slog.Record) error {
	h := slog.Default().Handler()
	if !h.Enabled(ctx, r.Level) {
		return nil
	}
	r.Message = fmt.Sprint("zlockd client: ", r.Message)
	return h.Handle(ctx, r)
}

func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w }
func (w warnings) WithGroup(string) slog.Handler      { return w }
