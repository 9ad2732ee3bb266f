package view

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/zlockd/zlockd/server/view/act"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/server/view/look"
)

// New returns a View, which Close ends.
func New(o Options) *View {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	v := &View{o: o, source: o.Source, began: o.Now(),
		look: look.New(o.Source, o.ShowAll), desk: ask.New(o.Authorize, o.ShowAll, o.Source.Status)}
	v.actor = act.New(o.Source, v.look, v.desk, o.Authorize, o.Log)
	v.ctx, v.stop = context.WithCancel(context.Background())
	v.wg.Go(func() { v.tellEnded(v.ctx) })
	v.wg.Go(func() { v.sampleRates(v.ctx) })
	return v
}

// Close ends the goroutines in the background.
func (v *View) Close() {
	v.reach.mu.Lock() // no later request asks other servers
	v.stop()
	v.reach.mu.Unlock()
	v.wg.Wait()
}

// Pages returns the handlers by their patterns.
func (v *View) Pages() map[string]http.Handler {
	return map[string]http.Handler{
		"/{$}":             http.HandlerFunc(v.servePage),
		"/locks":           v.desk.Answer(v.listLocks),
		"/locks/{name...}": v.desk.Answer(v.oneLock),
		"/wait-graph":      v.desk.Answer(v.waitGraph),
		"/sessions":        v.desk.Answer(v.listSessions),
		"/sessions/ended":  v.desk.Answer(v.listEnded),
		"/sessions/{name}": v.desk.Answer(v.oneSession),
		"/top":             v.desk.Answer(v.top),
		"/overview":        v.desk.Answer(v.overview),
		"/tree/{name...}":  v.desk.Answer(v.oneNode),
		"/actions/{name}":  http.HandlerFunc(v.actor.Act),
	}
}
