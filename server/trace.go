package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server/admin"
)

const (
	traceWait    = 10 * time.Second // for a request to follow, and until it is through
	traceWaitMax = 25 * time.Second // within the time that an answer may take
)

// addTracePage serves GET /debug/trace: one request on its way through this
// server, a line for each place with its time. With session=ID it is the next
// change of that session, which may take as long as wait=D says; without, one
// of the server's own that changes nothing.
func (i *Instance) addTracePage() {
	i.addPages(map[string]http.Handler{"/debug/trace": http.HandlerFunc(i.serveTrace)})
}

func (i *Instance) serveTrace(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	refuse := func(code int, problem string) {
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
	session, wait, err := traceQuery(r)
	if err != nil {
		refuse(http.StatusBadRequest, err.Error())
		return
	}
	node := i.node.Load()
	if node == nil {
		refuse(http.StatusServiceUnavailable, errNotJoined.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	hops, err := node.Trace(ctx, session)
	if len(hops) == 0 && err != nil {
		code := http.StatusServiceUnavailable
		if errors.Is(err, raftfsm.ErrTracing) {
			code = http.StatusConflict
		}
		refuse(code, err.Error())
		return
	}
	_, _ = w.Write(traceText(node, session, hops, err)) // whoever has left needs no answer
}

func traceQuery(r *http.Request) (session int64, wait time.Duration, err error) {
	wait = traceWait
	q := r.URL.Query()
	if s := q.Get("session"); s != "" {
		id, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
		if err != nil || id == 0 {
			return 0, 0, fmt.Errorf("session %q is no id such as 0x1000a2b3c4d0001", s)
		}
		session = int64(id)
	}
	if s := q.Get("wait"); s != "" {
		if wait, err = time.ParseDuration(s); err != nil || wait <= 0 || wait > traceWaitMax {
			return 0, 0, fmt.Errorf("wait %q is no duration up to %v, such as 10s", s, traceWaitMax)
		}
	}
	return session, wait, nil
}

// traceText has a line for each hop: the time since the first, and since the
// one before.
func traceText(node *raftfsm.Node, session int64, hops []raftfsm.Hop, err error) []byte {
	of := "an empty request of its own"
	if session != 0 {
		of = fmt.Sprintf("session 0x%x", session)
	}
	leads := "no leader known"
	switch leader := node.Status().Leader; {
	case leader == node.ID():
		leads = "it leads"
	case leader != 0:
		leads = fmt.Sprintf("server %d leads", leader)
	}
	var b strings.Builder
	begin := hops[0].At
	fmt.Fprintf(&b, "server %d (%s), %s, from %s\n\n%10s %10s\n", node.ID(), leads, of, begin.UTC().Format("2006-01-02 15:04:05.000000Z"), "µs", "step")
	before := begin
	for _, h := range hops {
		fmt.Fprintf(&b, "%10d %+10d  %s\n", h.At.Sub(begin).Microseconds(), h.At.Sub(before).Microseconds(), h.Where)
		before = h.At
	}
	if err != nil {
		fmt.Fprintf(&b, "\n%v\n", err)
	}
	return []byte(b.String())
}
