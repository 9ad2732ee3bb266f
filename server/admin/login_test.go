package admin

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A failed login is counted, and logged with its user, its address and its page, once a
// second; the password is not logged.
func TestFailedLoginsAreCountedAndLogged(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1000, 0)
	check := func(user, password string) bool { return user == "super" && password == "päss" }
	a := must.Get(New(Options{
		Source: &fake{}, Authorize: check, Now: func() time.Time { return now },
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Pages: map[string]http.Handler{"/act": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, no := Super(check).User(r, ""); no != nil {
				w.WriteHeader(no.Status)
			}
		})},
	}))(t)
	h := a.Handler()
	try := func(authorization string) int {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/act", nil)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for i, c := range []struct {
		authorization string
		code          int
		failed        int64
		lines         int
	}{
		{"", 401, 0, 0}, {"digest super:päss", 200, 0, 0}, {"digest super:guess", 403, 1, 1},
		{"digest super:again", 403, 2, 1}, {"digest none", 403, 3, 2},
	} {
		if i == 4 {
			now = now.Add(time.Second)
		}
		if code := try(c.authorization); code != c.code || a.loginsFailed.Load() != c.failed ||
			strings.Count(log.String(), "login failed") != c.lines {
			t.Errorf("%q: %d, %d failed, log %s", c.authorization, code, a.loginsFailed.Load(), log.String())
		}
	}
	for _, part := range []string{"super", "192.0.2.1", "/act"} {
		expect.Has(t, log.String(), part, "is missing in")
	}
	expect.That(t, !strings.Contains(log.String(), "guess"), "the log has a password: %s", log.String())
}
