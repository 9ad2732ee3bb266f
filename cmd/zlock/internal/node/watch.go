package node

import (
	"context"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/server/view/answer"
)

// follow() prints the event of a watch when it fires. It does so only once, even if several verbs have set
// the same watch.
func (s *Shell) follow(path string, w *zk.Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w == nil || s.told[w] {
		return
	}
	if s.told == nil {
		s.told = map[*zk.Watch]bool{}
	}
	s.told[w] = true
	s.count(path, 1)
	go func() {
		<-w.Fired()
		s.mu.Lock()
		delete(s.told, w)
		s.count(path, -1)
		s.mu.Unlock()
		s.event(w.Event())
	}()
}

// count() adds n to the number of watches of a path. s.mu is held.
func (s *Shell) count(path string, n int) {
	if s.watched == nil {
		s.watched = map[string]int{}
	}
	if s.watched[path] += n; s.watched[path] == 0 {
		delete(s.watched, path)
	}
}

func removeWatches(ctx context.Context, c *verbCall) error {
	c.mu.Lock()
	n := c.watched[c.args[0]]
	c.mu.Unlock()
	if n == 0 {
		return refused{"KeeperErrorCode = No such watcher for " + answer.Visible(c.args[0])}
	}
	return c.Conn.RemoveWatches(ctx, c.args[0])
}

// event() prints a change: in zkCli's form, or on one line for programs.
func (s *Shell) event(e zk.Event) {
	kind := e.Type.String()
	if e.Type == zk.EventLost {
		kind = "PersistentWatchRemoved"
	}
	switch {
	case e.Type == zk.EventOver:
	case s.Format == call.JSON:
		_ = s.json(struct {
			Time string `json:"time"`
			Type string `json:"type"`
			Path string `json:"path"`
		}{time.Now().UTC().Format(time.RFC3339Nano), kind, e.Path})
	case s.Format == call.Plain:
		s.print("%s\t%s\t%s", time.Now().UTC().Format(time.RFC3339Nano), kind, answer.Visible(e.Path))
	default:
		s.print("\nWATCHER::\n\nWatchedEvent state:SyncConnected type:%s path:%s", kind, answer.Visible(e.Path))
	}
}

// Waits reports whether a verb runs until it is interrupted.
func Waits(words []string) bool {
	v := find(words[0])
	return v != nil && v.name == "watch"
}

func watch(ctx context.Context, c *verbCall) error {
	if c.mode != "PERSISTENT" && c.mode != "PERSISTENT_RECURSIVE" {
		return refused{"addWatch [-m mode] path # optional mode is one of " +
			"[PERSISTENT, PERSISTENT_RECURSIVE] - default is PERSISTENT_RECURSIVE"}
	}
	s, err := c.Conn.Subscribe(ctx, c.args[0], c.mode == "PERSISTENT_RECURSIVE")
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.count(c.args[0], 1)
	c.mu.Unlock()
	go func() {
		defer func() {
			c.mu.Lock()
			c.count(c.args[0], -1)
			c.mu.Unlock()
		}()
		for {
			e, err := s.Next(context.WithoutCancel(ctx))
			if err != nil {
				return
			}
			c.event(e)
		}
	}()
	return nil
}
