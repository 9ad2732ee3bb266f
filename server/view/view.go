package view

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/observe"
)

// Source is the server as this package sees it.
type Source interface {
	recipe.Watches
	Ended
	// View runs f under the read side of the state lock, if there is a state.
	View(f func(*state.State)) bool
	// Status, Conns and WatchCount tell of this server.
	Status(admin.Need) *admin.Status
	Conns() []admin.Conn
	WatchCount(session int64) int
	// WatchScan calls f for pairs of a path and a session that watches it, until f returns false.
	WatchScan(f func(path string, session int64) bool)
	// GoneClients returns the counts of connections that have ended, by address.
	GoneClients() map[string]observe.Count
	// Do carries out a request through the log and returns its outcome.
	Do(context.Context, state.Request) (state.Outcome, error)
	// HandOver gives leadership to another server.
	HandOver(context.Context) error
	// Members lists the members and how far each is. It asks other servers, so it may take some
	// seconds.
	Members(context.Context) (*status.Members, error)
	// TakeSnapshot writes a snapshot to disk.
	TakeSnapshot() error
}

// Options say what the view shows to whom.
type Options struct {
	Source Source // required
	// Authorize knows the users that may act.
	Authorize admin.Super
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
	o        Options
	source   Source
	token    string // of the page: a change needs it
	costly   chan struct{}
	outgoing admin.Outgoing
	scans    scans
	rates    rates
	meter    meter
	reach    reach
	told     atomic.Pointer[troubles] // of the newest scan
	looking  atomic.Bool
	began    time.Time
	ctx      context.Context // ends with Close
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// Version is the version of the answers. It changes when a field changes its
// meaning or goes; fields may be added.
const Version = 1

// View builds costlyAtOnce costly answers at a time, each within costlyTime.
const (
	costlyAtOnce = 4
	costlyTime   = 10 * time.Second
)

// New returns a View, which Close ends.
func New(o Options) *View {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	var token [16]byte
	rand.Read(token[:]) // never fails
	v := &View{o: o, source: o.Source, token: hex.EncodeToString(token[:]), costly: make(chan struct{},
		costlyAtOnce), began: o.Now()}
	v.ctx, v.stop = context.WithCancel(context.Background())
	v.wg.Go(func() { v.tellEnded(v.ctx) })
	v.wg.Go(func() { v.sampleRates(v.ctx) })
	return v
}

// Close ends the goroutines in the background.
func (v *View) Close() {
	v.reach.mu.Lock() // after this no request asks other servers
	v.stop()
	v.reach.mu.Unlock()
	v.wg.Wait()
}

// Pages returns the handlers by their patterns.
func (v *View) Pages() map[string]http.Handler {
	return map[string]http.Handler{
		"/{$}":             http.HandlerFunc(v.servePage),
		"/locks":           v.answer(v.listLocks),
		"/locks/{name...}": v.answer(v.oneLock),
		"/wait-graph":      v.answer(v.waitGraph),
		"/sessions":        v.answer(v.listSessions),
		"/sessions/ended":  v.answer(v.listEnded),
		"/sessions/{name}": v.answer(v.oneSession),
		"/top":             v.answer(v.top),
		"/overview":        v.answer(v.overview),
		"/tree/{name...}":  v.answer(v.oneNode),
		"/actions/{name}":  http.HandlerFunc(v.act),
	}
}
