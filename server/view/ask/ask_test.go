package ask

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

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
		expect.That(t, p.Total == 250 && q.err == nil, "%s: %+v %v", text, p, q.err)
	}
}

func TestAnAnswerThatIsTooLargeIsRefused(t *testing.T) {
	w := httptest.NewRecorder()
	new(Desk).send(w, httptest.NewRequest("GET", "/", nil), strings.Repeat("x", maxAnswer))
	expect.That(t, w.Code == http.StatusRequestEntityTooLarge && w.Body.Len() < 1<<10, "%d, %d bytes", w.Code,
		w.Body.Len())
}

// stuck is the connection of a client that reads no more than a part of an answer.
type stuck struct {
	*httptest.ResponseRecorder
	parts, bytes int
	until        time.Time
}

func (s *stuck) SetWriteDeadline(t time.Time) error { s.until = t; return nil }

func (s *stuck) Write(b []byte) (int, error) {
	if s.parts--; s.parts < 0 {
		return 0, os.ErrDeadlineExceeded // at until
	}
	s.bytes += len(b)
	return len(b), nil
}

// A client that does not read its answer soon gives its place away: it has some seconds, and one more for
// each MiB that it has read.
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
	}
}

// unread is the writer of an answer that its client does not read until free is closed.
type unread struct {
	*httptest.ResponseRecorder
	reached, free chan struct{}
}

func (u *unread) Write(b []byte) (int, error) {
	close(u.reached)
	<-u.free
	return len(b), nil
}

// A client that does not read its answer has given its turn away to the next.
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
	expect.That(t, w.Code == ErrSlow.Status && strings.Contains(w.Body.String(), ErrSlow.Text),
		"%d %s", w.Code, w.Body)
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
