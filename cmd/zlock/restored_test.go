package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/must"
)

// What a restore has done is told in one line, or in JSON; a refusal is told as
// the server says it.
func TestRestoreTellsWhatCameOfIt(t *testing.T) {
	refuses := false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/members":
			io.WriteString(w, `{"v":1,"cluster":"0123456789abcdef","members":{}}`)
		case refuses:
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, `{"error":"another restore is under way"}`)
		default:
			if _, err := io.Copy(io.Discard, r.Body); err != nil || r.URL.Path != "/commands/restore" ||
				r.URL.RawQuery != "keep-sessions=true" {
				t.Errorf("asked for %s: %v", r.URL, err)
			}
			io.WriteString(w, `{"v":1,"last_zxid":"0x100000007","nodes":5,"sessions":2,"ended":3}`)
		}
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "backup")
	f := must.Get(os.Create(file))(t)
	must.OK(t, state.New("c").StartSnapshot(state.Position{Index: 5, Term: 2}).Write(f, func(read func()) {
		read()
	}))
	must.OK(t, f.Close())
	restore := func(options ...string) (out, errs string, code int) {
		env := map[string]string{"ZLOCK_ADMIN": strings.TrimPrefix(srv.URL, "http://")}
		return runIn(t, env, append([]string{"restore", "--keep-sessions", "--yes", "01234567", file},
			options...)...)
	}
	out, errs, code := restore()
	if !regexp.MustCompile(
		`^zlock: restored: 5 nodes, zxid 0x100000007, in \S+; 3 sessions ended, 2 go on\n$`).MatchString(errs) ||
		out != "" || code != 0 {
		t.Errorf("%q %q %d", out, errs, code)
	}
	out, errs, code = restore("-o", "json")
	if !regexp.MustCompile(`"zxid":"0x100000007","nodes":5,"sessions":2,"ended":3,"seconds":\d`).MatchString(
		out) || errs != "" || code != 0 {
		t.Errorf("%q %q %d", out, errs, code)
	}
	refuses = true
	if out, errs, code = restore(); code != exitNo || !strings.Contains(errs, "another restore is under way") ||
		out != "" {
		t.Errorf("refused: %q %q %d", out, errs, code)
	}
}
