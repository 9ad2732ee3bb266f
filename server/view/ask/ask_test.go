package ask

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestPartsOfLists(t *testing.T) {
	for text, want := range map[string]string{
		"": "0 100 100", "limit=7": "0 7 7", "offset=200&limit=50": "200 250 -",
		"offset=200&limit=49": "200 249 249", "offset=999": "250 250 -", "limit=1000": "0 250 -",
	} {
		q := &Query{Values: must.Get(url.ParseQuery(text))(t)}
		offset, limit := q.Part()
		p, part := Cut(make([]int, 250), offset, limit)
		from, to := p.Offset, p.Offset+len(part)
		next := "-"
		if p.Next != nil {
			next = fmt.Sprint(*p.Next)
		}
		expect.Equal(t, fmt.Sprint(from, to, " ", next), want, "%s", text)
		expect.Equal(t, p.Total, 250, "%s: total", text)
		expect.OK(t, q.err, "%s", text)
	}
}

func TestAnAnswerThatIsTooLargeIsRefused(t *testing.T) {
	w := httptest.NewRecorder()
	new(Desk).send(w, httptest.NewRequest("GET", "/", nil), strings.Repeat("x", maxAnswer))
	expect.Equal(t, w.Code, http.StatusRequestEntityTooLarge, "code")
	expect.That(t, w.Body.Len() < 1<<10, "%d, %d bytes", w.Code, w.Body.Len())
}

// The type stuck is the connection of a client that reads no more than a part of an answer.
type stuck struct {
	*httptest.ResponseRecorder
	parts, bytes int
	until        time.Time
}

func (s *stuck) SetWriteDeadline(t time.Time) error { s.until = t; return nil }

func (s *stuck) Write(b []byte) (int, error) {
	if s.parts--; s.parts < 0 {
		return 0, os.ErrDeadlineExceeded // the write deadline has passed
	}
	s.bytes += len(b)
	return len(b), nil
}

// A client that reads its answer too slowly loses it. It has some seconds, and one more second for each MiB
// that it has read.
func TestSlowReadersLoseTheirAnswers(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 4<<20)
	for _, parts := range []int{0, 64, 1 << 20} {
		w := &stuck{ResponseRecorder: httptest.NewRecorder(), parts: parts}
		begun := time.Now()
		new(Desk).SendBytes(w, httptest.NewRequest("GET", "/", nil), "text/plain", body)
		most := 5*time.Second + time.Duration(w.bytes)*time.Second>>20
		expect.That(t, !w.until.IsZero() && w.until.Sub(begun) <= most+time.Since(begun),
			"%d bytes read: the deadline is after %v", w.bytes, w.until.Sub(begun))
		expect.Equal(t, w.bytes == len(body), parts == 1<<20, "%d bytes in %d parts", w.bytes, parts)
		expect.Equal(t, w.Code, http.StatusOK, "an answer that has begun is refused")
	}
}

// A zipped answer for which there is no memory is refused in clear text.
func TestARefusalIsNotZipped(t *testing.T) {
	d, w, r := new(Desk), httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	// All answers together may have this many bytes under way.
	must.OK(t, d.outgoing.Send("10.0.0.1:1", 128<<20, func() error {
		d.SendBytes(w, r, "text/plain", bytes.Repeat([]byte("x"), 2<<10))
		return nil
	}))
	expect.Equal(t, w.Code, http.StatusServiceUnavailable)
	expect.Has(t, w.Body.String(), errBusy.Text)
	for _, name := range []string{"Content-Encoding", "Content-Length"} {
		expect.Equal(t, w.Header().Get(name), "", "%s", name)
	}
}

// The type unread is the writer of an answer that its client does not read until the channel `free` is
// closed.
type unread struct {
	*httptest.ResponseRecorder
	reached, free chan struct{}
}

func (u *unread) Write(b []byte) (int, error) {
	close(u.reached)
	<-u.free
	return len(b), nil
}

// A client that does not read its answer does not keep its turn: the next request is answered.
func TestSlowReadersHoldNoTurn(t *testing.T) {
	d := &Desk{costly: make(chan struct{}, 1)}
	ask := func(w http.ResponseWriter) {
		r := httptest.NewRequest("GET", "/", nil)
		d.InTurn(w, r, "this", func(_ context.Context, w http.ResponseWriter) {
			d.SendBytes(w, r, "text/plain", []byte("x"))
		})
	}
	slow := &unread{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() { ask(slow); close(done) }()
	<-slow.reached
	next := httptest.NewRecorder()
	ask(next)
	expect.Equal(t, next.Code, http.StatusOK)
	close(slow.free)
	<-done
}

func TestLongTextIsCut(t *testing.T) {
	at := func(n int) string { return strings.Repeat("x", n) }
	s := Clip(at(maxText))
	expect.Equal(t, s, at(maxText), "a text of the greatest length has %d bytes", len(s))
	s = Clip(at(maxText + 1))
	expect.Equal(t, s, at(maxText)+"…", "a longer one has %d", len(s))
	if s := Clip(at(maxText-1) + "é"); s != at(maxText-1)+"…" {
		t.Errorf("half a character is left: %q", s[maxText-3:])
	}
	expect.Equal(t, Clip(strings.Repeat("\x80", maxText+1)), "…", "a text without a character")
	s = Href("/tree", at(4*maxText))
	expect.Equal(t, len(s), 5+4*maxText, "the longest path that is linked has %d bytes", len(s))
	s = Href("/tree", at(4*maxText+1))
	expect.Equal(t, s, "", "a longer one is linked with %d", len(s))
}

func TestAnAnswerThatTakesTooLongIsRefused(t *testing.T) {
	w := httptest.NewRecorder()
	new(Desk).Fail(w, fmt.Errorf("reading locks: %w", context.DeadlineExceeded))
	expect.Equal(t, w.Code, ErrSlow.Status, "code")
	expect.Has(t, w.Body.String(), ErrSlow.Text, "body")
}

func TestTextsOfAnswers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		expect.Equal(t, Thousands(n), want)
	}
	for accept, want := range map[string]bool{"gzip": true, "*": true, "br, gzip;q=0.5": true,
		"gzip; q = 0": false, "gzip;q=0.0": false, "gzip;q=0.00": false, "gzip;q=0.000": false, "deflate": false,
		"": false} {
		expect.Equal(t, takesGzip(accept), want, "%q", accept)
	}
	for s, want := range map[string]string{"0x1f": "31 true", "0X1F": "31 true", "31": "31 true",
		"-1": "-1 true", "0xffffffffffffffff": "-1 true", "": "0 false", "0x": "0 false", "x": "0 false"} {
		id, ok := ParseSession(s)
		expect.Equal(t, fmt.Sprint(id, ok), want, "%q", s)
	}
}

// A Desk answers valid requests of users who may ask. All other requests get an error that says what is
// wrong.
func TestAnswersOfADesk(t *testing.T) {
	serving := true
	d := New(func(user, password string) bool { return user+password == "super1" }, false,
		func(report.Need) *report.Status {
			return &report.Status{Node: status.Node{Serving: serving, Reason: "no leader"}}
		})
	h := d.Answer(func(_ context.Context, q *Query) (any, error) {
		switch size := q.Number("size", 1, 1, 9000); {
		case q.Wrong() != nil:
			return nil, q.Wrong()
		case q.All:
			return "all", nil
		case size == 4:
			return nil, NotFound("none of %d", size)
		default:
			return strings.Repeat("x", size), nil
		}
	})
	ask := func(method, url string, header ...string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, url, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		h.ServeHTTP(w, r)
		return w
	}
	const login = "Authorization"
	for _, c := range []struct {
		method, url, header, value string
		code                       int
		body                       string
	}{
		{"GET", "/", "", "", 200, `"x"`},
		{"GET", "/?size=3", "", "", 200, `"xxx"`},
		{"GET", "/", login, "digest super:1", 200, `"all"`},
		{"GET", "/", login, "digest super:2", 403, `"error":"Not authorized"`},
		{"GET", "/?size=%", "", "", 400, "the parameters cannot be read"},
		{"GET", "/?size=0", "", "", 400, "size=0: want a number from 1 to 9000"},
		{"GET", "/?siez=3", "", "", 400, `unknown parameter \"siez\"; known are size`},
		{"GET", "/?size=4", "", "", 404, "none of 4"},
		{"POST", "/", "", "", 405, "use GET for this"},
	} {
		w := ask(c.method, c.url, c.header, c.value)
		expect.Equal(t, w.Code, c.code, "%s %s %s", c.method, c.url, c.value)
		expect.Has(t, w.Body.String(), c.body, "%s %s %s", c.method, c.url, c.value)
		expect.Equal(t, w.Header().Get("Content-Type"), "application/json", "%s %s", c.method, c.url)
	}
	plain := ask("GET", "/?size=2000")
	expect.Equal(t, plain.Header().Get("Vary"), "Accept-Encoding")
	expect.Equal(t, plain.Header().Get("Content-Length"), "2003")
	expect.Equal(t, plain.Header().Get(answer.Stale), "")
	head := ask("HEAD", "/?size=2000")
	expect.Equal(t, fmt.Sprint(head.Code, head.Body.Len(), head.Header()), fmt.Sprint(200, 0, plain.Header()))
	for _, tag := range []string{plain.Header().Get("ETag"), `"x", ` + plain.Header().Get("ETag"), "*"} {
		w := ask("GET", "/?size=2000", "If-None-Match", tag)
		expect.Equal(t, fmt.Sprint(w.Code, w.Body.Len()), "304 0", "%s", tag)
	}
	for range 2 { // twice, because a zipper is used again
		w := ask("GET", "/?size=2000", "Accept-Encoding", "gzip")
		expect.Equal(t, w.Header().Get("Content-Encoding"), "gzip")
		text := must.Get(io.ReadAll(must.Get(gzip.NewReader(w.Body))(t)))(t)
		expect.Equal(t, string(text), plain.Body.String())
	}
	expect.Equal(t, ask("GET", "/", "Accept-Encoding", "gzip").Header().Get("Content-Encoding"), "", "of a byte")
	serving = false
	expect.Has(t, ask("GET", "/").Header().Get(answer.Stale), "no leader")
	all, no := New(nil, true, nil).Sees(httptest.NewRequest("GET", "/", nil))
	expect.That(t, all && no == nil, "a server that shows all names hides some: %v", no)
}

// All parameters are read, or the error names the first wrong parameter.
func TestParameters(t *testing.T) {
	for text, want := range map[string]string{
		"": "7 0s false  <nil>", "n=3&age=5m&flag=1&prefix=/a": "3 5m0s true /a <nil>",
		"n=1&flag": "1 0s true  <nil>", "n=9&flag=true": "9 0s true  <nil>", "flag=false": "7 0s false  <nil>",
		"flag=0": "7 0s false  <nil>", "n=0": "n=0", "n=10": "n=10", "n=x": "n=x", "age=x": "age=x",
		"age=-1s": "age=-1s", "flag=yes": "flag=yes", "prefix=a": "prefix=a", "n=x&age=x&prefix=a": "n=x",
		"more=1": "unknown parameter",
	} {
		q := &Query{Values: must.Get(url.ParseQuery(text))(t)}
		got := fmt.Sprint(q.Number("n", 7, 1, 9), q.Age("age"), q.Flag("flag"), " ", q.Prefix(), " ", q.Wrong())
		expect.Has(t, got, want, "%s", text)
		q.OfPage = true
		right := strings.HasSuffix(want, "<nil>") || text == "more=1"
		expect.Equal(t, q.Wrong() == nil, right, "%s on the page", text)
	}
	expect.Equal(t, (&Query{Name: "a/b/"}).Path(), "/a/b")
}
