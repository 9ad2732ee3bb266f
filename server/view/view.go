package view

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/act"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/server/view/look"
)

// Source is the server as this package sees it.
type Source interface {
	act.Source
	Ended
	// Conns and WatchCount tell only of this server's own connections.
	Conns() []report.Conn
	WatchCount(session int64) int
	// WatchScan calls f for each pair of a path and a session that watches it at this server, until f returns
	// false.
	WatchScan(f func(path string, session int64) bool)
	// GoneClients returns the counts of connections that have ended, by address.
	GoneClients() map[string]observe.Count
	// Members lists the members and the progress of each. It asks other servers, so it may take some seconds.
	Members(context.Context) (*status.Members, error)
}

// Options configure a View.
type Options struct {
	Source Source // required
	// Authorize checks whether a user may act.
	Authorize port.Super
	// ShowAll shows every name to everyone: no rights are checked.
	ShowAll bool
	// Now is the wall clock; nil is time.Now.
	Now func() time.Time
	// Log receives the actions of operators; nil discards them.
	Log *slog.Logger
}

// View answers HTTP requests. Its methods may be called by several goroutines
// at once.
type View struct {
	o       Options
	source  Source
	actor   *act.Actor
	desk    *ask.Desk
	look    *look.Looker
	rates   rates
	meter   meter
	reach   reach
	looking atomic.Bool
	began   time.Time
	ctx     context.Context // Close() cancels it
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// Ended provides the ended sessions. observe.Clients implements it.
type Ended interface {
	EndedSince(zxid int64) []observe.EndedSession
	EndedNews() <-chan struct{}
	Downs() []observe.Down
	Refused(addr string) (observe.Refusal, bool)
}

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

// Close ends the goroutines that the view has started, and waits until they have ended.
func (v *View) Close() {
	v.reach.mu.Lock() // a goroutine is started only with this lock held: none is after stop()
	v.stop()
	v.reach.mu.Unlock()
	v.wg.Wait()
}

// Pages returns the handlers. The key of each handler is its pattern.
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
