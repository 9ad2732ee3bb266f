package server

import (
	"cmp"
	"net/http"
	"runtime/trace"
	"time"

	"github.com/zlockd/zlockd/server/admin/port"
)

const (
	traceTime    = "1s"             // default duration of a trace
	traceTimeMax = 25 * time.Second // less than an answer may take
	traceBytes   = 64 << 20         // the size of a trace; of a longer one, only the newest bytes are kept
)

// addTracePage adds GET /debug/trace?wait=D. The answer is an execution trace in the format of go tool trace,
// from the request on for the time D. It shows the steps of requests and entries.
func (i *Instance) addTracePage(pages map[string]http.Handler) {
	pages["/debug/trace"] = http.HandlerFunc(i.serveTrace)
}

func (i *Instance) serveTrace(w http.ResponseWriter, r *http.Request) {
	if no := i.trace(w, r); no != nil {
		http.Error(w, no.Text, no.Status)
	}
}

func (i *Instance) trace(w http.ResponseWriter, r *http.Request) *port.Refusal {
	if r.Method != http.MethodGet {
		return port.Refuse(http.StatusMethodNotAllowed, "use GET for a trace")
	}
	if _, no := i.authorize().User(r, "A trace shows the requests of all clients"); no != nil {
		return no
	}
	wait, err := time.ParseDuration(cmp.Or(r.URL.Query().Get("wait"), traceTime))
	if err != nil || wait <= 0 || wait > traceTimeMax {
		return port.Refuse(http.StatusBadRequest, "wait %q is not a duration of at most %v, such as 5s",
			r.URL.Query().Get("wait"), traceTimeMax)
	}
	recorder := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: wait, MaxBytes: traceBytes})
	if err := recorder.Start(); err != nil {
		return port.Refuse(http.StatusConflict,
			"another trace is being recorded; ask again when that has ended: %v", err)
	}
	defer recorder.Stop()
	select {
	case <-r.Context().Done():
		return nil
	case <-time.After(wait):
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="zlockd.trace"`)
	_, _ = recorder.WriteTo(w) // ignore the error: then the client is gone
	return nil
}
