// Package ask takes the questions of operators over HTTP, a few at a time, and sends the answers: it reads
// parameters, and makes texts that clients chose fit to be shown. It knows no lock.
package ask

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/answer"
)

// Version is the version of the answers. It changes when a field changes its meaning or is removed, but not
// when a field is added.
const Version = 1

// Bounds on the work of a desk: it builds at most costlyAtOnce answers at a time, each within CostlyTime.
const (
	costlyAtOnce = 4
	CostlyTime   = 10 * time.Second
)

// Desk takes the questions of operators and sends the answers. Any goroutine may use it.
type Desk struct {
	authorize port.Super // checks whether a user may see all names; nil: no user may
	showAll   bool       // every client sees all names
	status    func(report.Need) *report.Status
	costly    chan struct{}
	outgoing  port.Outgoing
}

// New returns a desk. The parameter `status` is a function that describes the server.
func New(authorize port.Super, showAll bool, status func(report.Need) *report.Status) *Desk {
	return &Desk{authorize: authorize, showAll: showAll, status: status,
		costly: make(chan struct{}, costlyAtOnce)}
}

// maxAnswer bounds an answer in bytes.
const maxAnswer = 50 << 20

// Answer makes an HTTP handler that sends the result of f as JSON, with an ETag, and zipped if the client
// accepts that. A desk runs only a few such handlers at a time.
func (d *Desk) Answer(f Answerer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.InTurn(w, r, "this", func(ctx context.Context, w http.ResponseWriter) {
			if s := d.status(0); !s.Serving {
				w.Header().Set(answer.Stale, "this server serves no clients: "+s.Reason)
			}
			all, no := d.Sees(r)
			q := &Query{Name: r.PathValue("name"), All: all}
			var err error
			if no != nil {
				d.Fail(w, no)
			} else if q.Values, err = url.ParseQuery(r.URL.RawQuery); err != nil {
				d.Fail(w, BadRequest("the parameters cannot be read: %v", err))
			} else if a, err := f(ctx, q); err != nil {
				d.Fail(w, err)
			} else {
				d.send(w, r, a)
			}
		})
	})
}

// InTurn calls f for a GET request when the request's turn comes: a few run at a time, each within
// CostlyTime. Another method is refused; the error then contains the text `what`.
func (d *Desk) InTurn(w http.ResponseWriter, r *http.Request, what string,
	f func(context.Context, http.ResponseWriter)) {
	if no := port.Reads(w, r, what); no != nil {
		d.Fail(w, no)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), CostlyTime)
	defer cancel()
	select {
	case d.costly <- struct{}{}:
	case <-ctx.Done():
		d.Fail(w, errBusy)
		return
	}
	turn := &turnWriter{w, sync.OnceFunc(func() { <-d.costly })}
	defer turn.release()
	f(ctx, turn)
}

// turnWriter writes the answer to a request that has its turn. It ends the turn before the first byte:
// otherwise a client that does not read would keep other requests waiting.
type turnWriter struct {
	http.ResponseWriter
	release func()
}

// Unwrap lets http.ResponseController find the connection.
func (t *turnWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

var zippers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid, so there is no error
	return z
}}

// send() writes an answer.
func (d *Desk) send(w http.ResponseWriter, r *http.Request, a any) {
	b, err := json.Marshal(a)
	if err == nil && len(b) >= maxAnswer {
		err = errLarge
	}
	if err != nil {
		d.Fail(w, err)
		return
	}
	d.SendBytes(w, r, "application/json", append(b, '\n'))
}

// SendBytes sends an answer. If the client already has the same bytes, it says only that nothing has changed.
func (d *Desk) SendBytes(w http.ResponseWriter, r *http.Request, kind string, body []byte) {
	tag := etagOf(body)
	h := w.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Encoding")
	if match := r.Header.Get("If-None-Match"); match == "*" || slices.ContainsFunc(strings.Split(match, ","),
		func(s string) bool { return strings.TrimSpace(s) == tag }) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", kind)
	if len(body) > 1<<10 && takesGzip(r.Header.Get("Accept-Encoding")) {
		var zipped bytes.Buffer
		z := zippers.Get().(*gzip.Writer)
		z.Reset(&zipped)
		_, _ = z.Write(body) // a bytes.Buffer never returns an error
		_ = z.Close()
		zippers.Put(z)
		h.Set("Content-Encoding", "gzip")
		body = zipped.Bytes()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodHead {
		return
	}
	if t, ok := w.(*turnWriter); ok {
		t.release()
	}
	begun := false
	err := d.outgoing.Send(r.RemoteAddr, len(body), func() error {
		begun = true
		return port.Pace(w, http.NewResponseController(w).SetWriteDeadline, time.Now(), body)
	})
	if err != nil && !begun {
		h.Del("Content-Encoding")
		h.Del("Content-Length")
		d.Fail(w, errBusy)
	}
}

func takesGzip(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" || name == "*" {
			q := strings.ReplaceAll(params, " ", "")
			return q != "q=0" && q != "q=0.0" && q != "q=0.00" && q != "q=0.000"
		}
	}
	return false
}

// The type failed is an error as JSON.
type failed struct {
	V     int    `json:"v"`
	Error string `json:"error"`
}

func (d *Desk) Fail(w http.ResponseWriter, err error) {
	p := port.Refuse(http.StatusInternalServerError, "%v", err)
	if errors.Is(err, context.DeadlineExceeded) {
		p = ErrSlow
	}
	errors.As(err, &p)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(failed{Version, Shown(p.Text)})
}

// Answerer computes the answer to a query.
type Answerer func(context.Context, *Query) (any, error)

// Sees reports whether a request may see all names. Otherwise it may see only the names that every client may
// list.
func (d *Desk) Sees(r *http.Request) (all bool, no *port.Refusal) {
	all, no = d.authorize.Sees(r)
	return all || d.showAll, no
}

// NoName returns the refusal of an answer that would contain `count` names which not every client may list.
func (d *Desk) NoName(count int, what string) error {
	status := http.StatusUnauthorized
	if d.authorize == nil {
		status = http.StatusForbidden
	}
	return port.Refuse(status, "%s (Authorization: digest USER:PASSWORD)",
		port.NoNames(max(count, 1), what))
}

// etagOf returns a tag of an answer's bytes. A client that polls sends the tag, and gets a short answer if
// nothing has changed.
func etagOf(b []byte) string {
	sum := sha256.Sum256(b)
	return `W/"` + hex.EncodeToString(sum[:12]) + `"`
}
