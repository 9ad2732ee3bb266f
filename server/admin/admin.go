package admin

import (
	"cmp"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/server/admin/port"
)

// Options configure the admin port.
type Options struct {
	Source Source // required

	// Whitelist lists the four-letter words that Admin answers, separated by commas. "*" means all words, and an
	// empty list means DefaultWhitelist. srvr is always answered.
	Whitelist string
	// Authorize checks whether a user may change state over HTTP.
	Authorize port.Super
	// Hosts are further names by which a request may call this server, or "*" for any name. It may always use IP
	// addresses, localhost, this machine's name and the names of the members.
	Hosts []string
	// Profiling serves /debug/pprof.
	Profiling bool
	// NoJVM leaves out the metrics jvm_*. They describe this process under names that were made for Java.
	NoJVM bool
	// Pages are further handlers. Each key is a pattern of http.ServeMux.
	Pages map[string]http.Handler
	// Now is the clock for deadlines; nil is time.Now.
	Now func() time.Time
	// Log receives the errors that occur while Admin answers; nil discards them.
	Log *slog.Logger
}

// Admin answers four-letter words and HTTP requests. Its methods may be called
// by several goroutines at once.
type Admin struct {
	o        Options
	words    []word
	allowed  atomic.Pointer[map[string]bool] // the whitelist: words that Admin answers
	commands []command
	byName   map[string]*command // the commands by name and by alias

	loginsFailed atomic.Int64
	loginLogged  atomic.Int64 // when a failed login was last logged, in seconds since 1970

	mask  atomic.Int64 // ZooKeeper's trace mask, which clients can set and read; it has no effect here
	heavy port.Pool
	asks  port.Pool // for requests that make this server ask other servers
	// scrapes is for requests for /metrics. They have a pool of their own, so that heavy requests, however many,
	// do not keep operators from the metrics.
	scrapes  port.Pool
	outgoing port.Outgoing
}

// defaultMask is the trace mask that ZooKeeper starts with.
const defaultMask = 306

// New returns an Admin, or an error when the whitelist names an unknown word.
func New(o Options) (*Admin, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	a := &Admin{o: o, heavy: port.NewPool(), asks: port.NewPool(), scrapes: port.NewPool()}
	if err := a.SetWhitelist(o.Whitelist); err != nil {
		return nil, err
	}
	a.mask.Store(defaultMask)
	a.words = a.wordTable()
	a.commands = a.commandTable()
	a.byName = make(map[string]*command)
	for i := range a.commands {
		c := &a.commands[i]
		a.byName[c.name] = c
		for _, alias := range c.aliases {
			a.byName[alias] = c
		}
	}
	return a, nil
}
