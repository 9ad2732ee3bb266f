package admin

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/pprof"
	"os"

	"github.com/zlockd/zlockd/server/admin/exporter"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/report"
)

// Handler serves everything under the admin address.
//
// It does not trust headers that a proxy may add. It sends no header that would let a page of another site
// read the answers.
func (a *Admin) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range a.Routes() {
		mux.Handle(pattern, h)
	}
	heard := port.HearLogins(mux, a.loginFailed)
	return a.forThisHost(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodTrace {
			http.Error(w, "TRACE is refused", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		heard.ServeHTTP(w, r)
	}))
}

// Routes returns the handlers. The key of each handler is its pattern.
func (a *Admin) Routes() map[string]http.Handler {
	routes := map[string]http.Handler{
		"/commands":        http.HandlerFunc(a.listCommands),
		"/commands/{name}": http.HandlerFunc(a.serveCommand),
		"/metrics":         a.metricsHandler(),
		"/health":          http.HandlerFunc(a.serveHealth),
		"/ready":           http.HandlerFunc(a.serveReady),
		"/members":         http.HandlerFunc(a.serveMembers),
	}
	maps.Copy(routes, a.o.Pages)
	if a.o.Profiling {
		routes["/debug/pprof/"] = port.Unlimited(pprof.Index)
		routes["/debug/pprof/cmdline"] = http.HandlerFunc(servePprofName)
		routes["/debug/pprof/profile"] = port.Unlimited(pprof.Profile)
		routes["/debug/pprof/symbol"] = port.Unlimited(pprof.Symbol)
		routes["/debug/pprof/trace"] = port.Unlimited(pprof.Trace)
	}
	return routes
}

// servePprofName takes the place of pprof.Cmdline, which would show the arguments of the process: they may
// contain the digest of the super user's password.
func servePprofName(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, os.Args[0])
}

// loginFailed counts a failed login. It logs at most one in a second, so that a program that tries many
// passwords does not fill the disk.
func (a *Admin) loginFailed(r *http.Request, user string) {
	count := a.loginsFailed.Add(1)
	now, last := a.o.Now().Unix(), a.loginLogged.Load()
	if now != last && a.loginLogged.CompareAndSwap(last, now) {
		a.o.Log.Warn("login failed", "user", fmt.Sprintf("%.64s", user), "from", r.RemoteAddr, "path",
			fmt.Sprintf("%.128s", r.URL.Path), "failed", count)
	}
}

// HTTPServer returns a server for Handler.
func (a *Admin) HTTPServer() *http.Server { return port.HTTPServer(a.Handler()) }

// MetricsServer returns a server that serves only /metrics.
func (a *Admin) MetricsServer() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("/metrics", a.metricsHandler())
	return port.HTTPServer(a.forThisHost(mux))
}

func (a *Admin) metricsHandler() http.Handler {
	e := exporter.Source{Status: a.o.Source.Status, LoginsFailed: a.loginsFailed.Load, NoJVM: a.o.NoJVM}
	return a.outgoing.InPlace(a.scrapes, a.o.Now, e.Handler())
}

func (a *Admin) listCommands(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	for _, c := range a.commands {
		fmt.Fprintf(w, "<a href=\"/commands/%s\">%s</a>\n<br/>\n", c.name, c.name)
	}
}

// serveCommand runs one command. As in ZooKeeper, the answer is JSON, and its status is 200 even for a
// command that failed. Only the refusal of a caller that may not change state has another status; ZooKeeper
// lacks that refusal.
func (a *Admin) serveCommand(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	c := a.byName[name]
	hidden := report.Need(0)
	var no *port.Refusal
	switch {
	case c == nil:
		no = port.Refuse(http.StatusOK, "Unknown command: %s", name)
	case c.changes:
		no = a.mayChange(w, r)
	default:
		no = port.Reads(w, r, name)
		if no == nil {
			var all bool
			if all, no = a.o.Authorize.Sees(r); all {
				hidden = report.NeedHidden
			}
		}
	}
	release := func() {}
	if no == nil && c.heavy {
		var ok bool
		if release, ok = a.heavy.Acquire(); !ok {
			no = port.ErrBusy
		}
	}
	if no != nil {
		no.Answer(w, name)
		return
	}
	var body bytes.Buffer
	func() {
		defer release()
		_ = writeJSON(&body, a.runCommand(c, name, hidden, r.URL.Query())) // a write to `body` cannot fail
	}()
	w.Header().Set("Content-Type", "application/json")
	a.outgoing.Answer(w, r, a.o.Now(), http.StatusOK, body.Bytes())
}

// mayChange refuses a request to change state unless it is a POST by the super user.
func (a *Admin) mayChange(w http.ResponseWriter, r *http.Request) *port.Refusal {
	no := port.Posts(w, r)
	if no == nil {
		_, no = a.o.Authorize.User(r, "Commands that change state are off")
	}
	return no
}

// serveHealth reports whether the process is healthy. It is so even while it waits for a leader, because a
// restart would not help.
func (a *Admin) serveHealth(w http.ResponseWriter, _ *http.Request) {
	s := a.o.Source.Status(report.NeedProcess)
	code, word := http.StatusOK, "ok"
	if len(s.Faults) > 0 {
		code, word = http.StatusServiceUnavailable, "failing"
	}
	a.serveState(w, s, code, word, s.Faults)
}

// serveReady reports whether the server serves clients.
func (a *Admin) serveReady(w http.ResponseWriter, _ *http.Request) {
	s := a.o.Source.Status(0)
	if s.Serving {
		a.serveState(w, s, http.StatusOK, "ready", nil)
		return
	}
	a.serveState(w, s, http.StatusServiceUnavailable, "not ready", append([]string{s.Reason}, s.Faults...))
}

func (a *Admin) serveState(w http.ResponseWriter, s *report.Status, code int, word string, reasons []string) {
	var mode any
	if s.Serving {
		mode = string(s.Mode)
	}
	answerJSON(w, code, object{{"v", 1}, {"status", word}, {"reasons", reasons}, {"notices", s.Notices},
		{"serving", s.Serving}, {"mode", mode}, {"id", s.ID}, {"leader", s.Leader}, {"zxid", report.Hex(s.Zxid)},
		{"version", s.Version}, {"uptime_ms", s.Uptime.Milliseconds()}})
}
