package view

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

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/view/answer"
)

func badRequest(format string, args ...any) error {
	return port.Refuse(http.StatusBadRequest, format, args...)
}

func notFound(format string, args ...any) error {
	return port.Refuse(http.StatusNotFound, format, args...)
}

func conflict(format string, args ...any) error {
	return port.Refuse(http.StatusConflict, format, args...)
}

var (
	errBusy       = port.Refuse(http.StatusServiceUnavailable, "too many costly questions at once; ask again")
	errSlow       = port.Refuse(http.StatusServiceUnavailable, "the answer took too long; ask for less")
	errNotServing = port.Refuse(http.StatusServiceUnavailable,
		"this server has no state yet: it waits for the other servers")
	errLarge = port.Refuse(http.StatusRequestEntityTooLarge, "the answer would be too large; ask for less")
)

// maxAnswer bounds an answer in bytes.
const maxAnswer = 50 << 20

// answer makes an HTTP handler from f. Its answers are JSON with an ETag, zipped for clients that accept
// that. The handler computes at most four answers at a time.
func (v *View) answer(f answerer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.inTurn(w, r, "this", func(ctx context.Context, w http.ResponseWriter) {
			if s := v.source.Status(0); !s.Serving {
				w.Header().Set(answer.Stale, "this server serves no clients: "+s.Reason)
			}
			all, no := v.sees(r)
			q := &query{name: r.PathValue("name"), all: all}
			var err error
			if no != nil {
				v.fail(w, no)
			} else if q.values, err = url.ParseQuery(r.URL.RawQuery); err != nil {
				v.fail(w, badRequest("the parameters cannot be read: %v", err))
			} else if a, err := f(ctx, q); err != nil {
				v.fail(w, err)
			} else {
				v.send(w, r, a)
			}
		})
	})
}

// inTurn calls f for a GET request, a few at a time, within costlyTime. For other methods it returns an error
// that names what.
func (v *View) inTurn(w http.ResponseWriter, r *http.Request, what string,
	f func(context.Context, http.ResponseWriter)) {
	if no := port.Reads(w, r, what); no != nil {
		v.fail(w, no)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), costlyTime)
	defer cancel()
	select {
	case v.costly <- struct{}{}:
	case <-ctx.Done():
		v.fail(w, errBusy)
		return
	}
	turn := &turnWriter{w, sync.OnceFunc(func() { <-v.costly })}
	defer turn.release()
	f(ctx, turn)
}

// turnWriter writes the answer of a request that has its turn. It ends the turn before it writes, so that a
// client that does not read cannot delay others.
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

// send writes an answer.
func (v *View) send(w http.ResponseWriter, r *http.Request, a any) {
	b, err := json.Marshal(a)
	if err == nil && len(b) >= maxAnswer {
		err = errLarge
	}
	if err != nil {
		v.fail(w, err)
		return
	}
	v.sendBytes(w, r, "application/json", append(b, '\n'))
}

// sendBytes sends an answer, or reports that it has not changed if the client has it already.
func (v *View) sendBytes(w http.ResponseWriter, r *http.Request, kind string, body []byte) {
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
	err := v.outgoing.Send(r.RemoteAddr, len(body), func() error {
		begun = true
		return port.Pace(w, http.NewResponseController(w).SetWriteDeadline, time.Now(), body)
	})
	if err != nil && !begun {
		h.Del("Content-Encoding")
		h.Del("Content-Length")
		v.fail(w, errBusy)
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

// failed is an error as JSON.
type failed struct {
	V     int    `json:"v"`
	Error string `json:"error"`
}

func (v *View) fail(w http.ResponseWriter, err error) {
	p := port.Refuse(http.StatusInternalServerError, "%v", err)
	if errors.Is(err, context.DeadlineExceeded) {
		p = errSlow
	}
	errors.As(err, &p)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(failed{Version, shown(p.Text)})
}

// answerer computes the answer to a query.
type answerer func(context.Context, *query) (any, error)

// sees reports whether a request may see all names, or only the names that every client may list.
func (v *View) sees(r *http.Request) (all bool, no *port.Refusal) {
	all, no = v.o.Authorize.Sees(r)
	return all || v.o.ShowAll, no
}

// noName refuses an answer about names that not every client may list.
func (v *View) noName(count int, what string) error {
	status := http.StatusUnauthorized
	if v.o.Authorize == nil {
		status = http.StatusForbidden
	}
	return port.Refuse(status, "%s (Authorization: digest USER:PASSWORD)",
		port.NoNames(max(count, 1), what))
}

// query is a request: the end of its URL's path, and its parameters.
type query struct {
	name   string
	values url.Values
	all    bool     // names that not every client may list are shown, too
	ofPage bool     // the parameters are those of the page, which has further ones
	known  []string // the parameters that were read
	err    error    // the first thing that is wrong with them
}

// path returns the path of the node that the query names.
func (q *query) path() string { return "/" + strings.Trim(q.name, "/") }

// wrong returns what is wrong with the parameters. It is called after all known parameters were read. It
// refuses unknown parameters, because a filter with a misspelt name would show everything.
func (q *query) wrong() error {
	for name := range q.values {
		if !q.ofPage && !slices.Contains(q.known, name) {
			return badRequest("unknown parameter %q; known are %s", name, strings.Join(q.known, ", "))
		}
	}
	return q.err
}

func (q *query) text(name string) string {
	q.known = append(q.known, name)
	return q.values.Get(name)
}

func (q *query) refuse(format string, args ...any) {
	if q.err == nil {
		q.err = badRequest(format, args...)
	}
}

// number reads a whole number, or returns def.
func (q *query) number(name string, def, least, most int) int {
	s := q.text(name)
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		q.refuse("%s=%s: want a number from %d to %d", name, s, least, most)
		return def
	}
	return n
}

func (q *query) age(name string) time.Duration {
	s := q.text(name)
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		q.refuse("%s=%s: want a time such as 30s or 5m", name, s)
	}
	return d
}

func (q *query) flag(name string) bool {
	switch s := q.text(name); {
	case !q.values.Has(name), s == "false", s == "0":
		return false
	case s == "", s == "true", s == "1":
		return true
	default:
		q.refuse("%s=%s: want true or false", name, s)
		return false
	}
}

// prefix reads the path that answers must be at or below.
func (q *query) prefix() string {
	p := q.text("prefix")
	if p != "" && p[0] != '/' {
		q.refuse("prefix=%s: want a path that begins with a slash, such as /app", p)
	}
	return p
}

// page is a part of a list.
type page struct {
	Total  int  `json:"total"` // the number of all rows that match
	Offset int  `json:"offset"`
	Next   *int `json:"next,omitempty"` // offset of the next part
}

// maxPage is how many entries a part has at most.
const maxPage = 1000

// part returns which part of a list the query asks for.
func (q *query) part() (offset, limit int) {
	return q.number("offset", 0, 0, 1<<30), q.number("limit", 100, 1, maxPage)
}

// cut returns a part of a list.
func cut[T any](list []T, offset, limit int) (page, []T) {
	from := min(offset, len(list))
	to := min(from+limit, len(list))
	p := page{Total: len(list), Offset: from}
	if to < len(list) {
		p.Next = &to
	}
	return p, list[from:to]
}

// maxText is how many bytes of a name or path an answer shows.
const maxText = 1 << 10

// clip turns bytes that clients chose into UTF-8 text of bounded length.
func clip(s string) string {
	if len(s) > maxText {
		s = recipe.CutText(s, maxText) + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// shown turns bytes that clients chose into text for people.
func shown(s string) string { return answer.Visible(clip(s)) }

// href returns the URL of a path, whatever bytes it has; empty if the path is too long.
func href(dir, path string) string {
	if len(path) > 4*maxText {
		return ""
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return dir + strings.Join(parts, "/")
}

// parseSession reads an id, in hex or decimal.
func parseSession(s string) (int64, bool) {
	if h, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok {
		n, err := strconv.ParseUint(h, 16, 64)
		return int64(n), err == nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// etagOf returns a tag of an answer's bytes. A client that polls sends the tag, and gets a short answer if
// nothing has changed.
func etagOf(b []byte) string {
	sum := sha256.Sum256(b)
	return `W/"` + hex.EncodeToString(sum[:12]) + `"`
}
