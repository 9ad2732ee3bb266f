package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// If a server refuses the identities, zlock says at once that it gets no session.
func TestRefusedIdentitiesGiveNoSession(t *testing.T) {
	auth := filepath.Join(t.TempDir(), "auth")
	must.OK(t, os.WriteFile(auth, []byte("nosuchscheme:secret\n"), 0o600))
	addr := server(t)
	_, errs, code := runIn(t, nil, "ls", "/", "-S", addr, "--auth-file", auth, "--connect-timeout", "60")
	expect.Equal(t, code, call.ExitNoSession, "exit code; it says %s", errs)
	expect.Has(t, errs, "no session with "+addr, "exit code: standard error")
	expect.Lacks(t, errs, "secret")
}

// An answer of the admin listener that zlock cannot understand is an error, not a crash.
func TestAnswersOfTheAdminListenerThatMakeNoSense(t *testing.T) {
	var status int
	var body string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	defer srv.Close()
	env := map[string]string{"ZLOCK_ADMIN": strings.TrimPrefix(srv.URL, "http://")}
	for _, c := range []struct {
		status int
		body   string
		args   string
		want   string
	}{
		{200, `{"parties":[{}],"edges":[{"from":0,"to":1}]}`, "wait-graph --server", "does not list"},
		{200, `{"parties":[{}],"edges":[{"from":-1,"to":0}]}`, "wait-graph --server", "does not list"},
		{500, `{"error":"the disk is full"}`, "sessions", ": the disk is full\n"},
		{500, `{"reason":"none"}`, "sessions", `{"reason":"none"}`},
		{500, "plain words\n", "sessions", "plain words"},
		{500, "", "sessions", "500 Internal Server Error"},
		{401, "", "sessions", "needs the super user's password"},
	} {
		status, body = c.status, c.body
		out, errs, code := runIn(t, env, strings.Fields(c.args)...)
		expect.That(t, code != 0, "%s: exit code %d, no %q in\n%s%s", c.body, code, c.want, out, errs)
		expect.Has(t, errs, c.want, "%s: standard error", c.body)
	}
}
