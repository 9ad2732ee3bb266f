package audit

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"

	"github.com/zlockd/zlockd/server/admin/port"
)

// HTTP returns a handler that runs `next` and then writes a line: for each request that may change something,
// and for each login that failed.
func (l *Log) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		login := r.Header.Get("Authorization") != ""
		changes := r.Method != http.MethodGet && r.Method != http.MethodHead
		if !changes && !login {
			next.ServeHTTP(w, r)
			return
		}
		var asked bytes.Buffer
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
			r.Body = &copied{r.Body, &asked}
		}
		answer, wrong := &answer{ResponseWriter: w}, false
		port.HearLogins(next, func(*http.Request, string) { wrong = true }).ServeHTTP(answer, r)
		user, _, _ := port.Credentials(r)
		ip, _, _ := net.SplitHostPort(r.RemoteAddr)
		e := &Event{User: user, IP: ip, Operation: r.Method + " " + r.URL.RequestURI(), Request: asked.String()}
		if wrong || login && answer.code == http.StatusUnauthorized { // not 403, which may have other reasons
			e.Operation, e.Path, e.Request = "login", "", e.Operation
		} else if !changes {
			return
		}
		if answer.failed() {
			e.Result = failure
		}
		l.Add(e)
	})
}

// kept is how many bytes of a request and of its answer are looked at: the first of the body, and the last of
// the answer.
const kept = 1 << 10

// copied copies the first bytes of a body while the handler reads it.
type copied struct {
	io.ReadCloser
	to *bytes.Buffer
}

func (c *copied) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.to.Write(b[:min(n, kept-c.to.Len())])
	return n, err
}

// answer keeps the status and the end of an answer.
type answer struct {
	http.ResponseWriter
	code int
	tail []byte
}

// Unwrap lets http.ResponseController find the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	a.code = code
	a.ResponseWriter.WriteHeader(code)
}

func (a *answer) Write(b []byte) (int, error) {
	a.tail = append(a.tail, b[max(0, len(b)-kept):]...)
	a.tail = a.tail[max(0, len(a.tail)-kept):]
	return a.ResponseWriter.Write(b)
}

var withError = regexp.MustCompile(`"error" ?: ?"`)

// failed reports whether the request has failed. Its answer may have the status 200 and yet contain an error:
// so answer commands and jobs.
func (a *answer) failed() bool { return a.code >= http.StatusBadRequest || withError.Match(a.tail) }
