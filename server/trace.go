package server

import (
	"fmt"
	"net/http"
	"runtime/trace"
	"time"

	"github.com/zlockd/zlockd/server/admin"
)

const (
	traceTime    = time.Second      // recorded by default
	traceTimeMax = 25 * time.Second // within the time that an answer may take
	traceBytes   = 64 << 20         // kept of a trace, the newest
)

// addTracePage serves GET /debug/trace: an execution trace of this server from now on, for the
// time wait=D, in the format of go tool trace. It marks requests and entries on their way.
func (i *Instance) addTracePage() {
	i.addPages(map[string]http.Handler{"/debug/trace": http.HandlerFunc(i.serveTrace)})
}

func (i *Instance) serveTrace(w http.ResponseWriter, r *http.Request) {
	refuse := func(code int, problem string) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		fmt.Fprintln(w, problem)
	}
	if r.Method != http.MethodGet {
		refuse(http.StatusMethodNotAllowed, "a trace is asked for by GET")
		return
	}
	if i.o.Admin.Authorize == nil {
		refuse(http.StatusForbidden, "A trace tells of others' requests: start zlockd with --super-digest")
		return
	}
	if _, code, problem := admin.Login(r, i.o.Admin.Authorize); code != http.StatusOK {
		refuse(code, problem)
		return
	}
	wait := traceTime
	if s := r.URL.Query().Get("wait"); s != "" {
		var err error
		if wait, err = time.ParseDuration(s); err != nil || wait <= 0 || wait > traceTimeMax {
			refuse(http.StatusBadRequest, fmt.Sprintf("wait %q is no duration up to %v, such as 5s", s, traceTimeMax))
			return
		}
	}
	recorder := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: wait, MaxBytes: traceBytes})
	if err := recorder.Start(); err != nil {
		refuse(http.StatusConflict,
			fmt.Sprintf("another trace is being recorded; ask again when that has ended: %v", err))
		return
	}
	defer recorder.Stop()
	select {
	case <-r.Context().Done():
		return
	case <-time.After(wait):
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="zlockd.trace"`)
	_, _ = recorder.WriteTo(w) // a client that has left needs no answer
}
