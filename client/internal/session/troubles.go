package session

import (
	"sync"
	"time"
)

// troubles logs why there is no connection. If no server can be used, it logs the reasons at once. If some
// servers cannot be used and the others do not answer, it logs the reasons after a moment. It logs each
// reason once, and again only after there was a connection.
type troubles struct {
	k *Keeper

	mu       sync.Mutex
	servers  int           // number of servers
	patience time.Duration // how long to wait for another server after one server cannot be used
	latest   map[string]error
	said     map[string]string
	timer    *time.Timer // nil while no reason waits to be logged
}

const troublePatience = 300 * time.Millisecond

// add() records why a server could not be used.
func (t *troubles) add(server string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latest[server] = err
	switch {
	case len(t.latest) >= t.servers:
		t.say()
	case t.timer == nil:
		t.timer = time.AfterFunc(t.patience, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.timer != nil {
				t.say()
			}
		})
	}
}

// say() logs the reasons that are new. The caller holds t.mu.
func (t *troubles) say() {
	t.stop()
	if t.k.isDraining() {
		return
	}
	for server, err := range t.latest {
		if text := err.Error(); t.said[server] != text {
			t.said[server] = text
			t.k.opt.Log.Warn("no connection to server", "server", server, "err", err)
		}
	}
}

// stop() ends the timer. The caller holds t.mu.
func (t *troubles) stop() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// over() drops the reasons, because there is a connection.
func (t *troubles) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stop()
	clear(t.latest)
	clear(t.said)
}
