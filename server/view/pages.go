package view

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"time"
)

// New returns a View, which Close ends.
func New(o Options) *View {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	var token [16]byte
	rand.Read(token[:]) // never fails
	v := &View{o: o, source: o.Source, token: hex.EncodeToString(token[:]), began: o.Now(),
		desk: newDesk(o.Authorize, o.ShowAll, o.Source.Status)}
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
		"/locks":           v.desk.answer(v.listLocks),
		"/locks/{name...}": v.desk.answer(v.oneLock),
		"/wait-graph":      v.desk.answer(v.waitGraph),
		"/sessions":        v.desk.answer(v.listSessions),
		"/sessions/ended":  v.desk.answer(v.listEnded),
		"/sessions/{name}": v.desk.answer(v.oneSession),
		"/top":             v.desk.answer(v.top),
		"/overview":        v.desk.answer(v.overview),
		"/tree/{name...}":  v.desk.answer(v.oneNode),
		"/actions/{name}":  http.HandlerFunc(v.act),
	}
}
