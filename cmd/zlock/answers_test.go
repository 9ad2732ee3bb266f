package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// An answer of the admin listener that cannot be read fails the command.
func TestAnswersThatAreNotUnderstood(t *testing.T) {
	for body, args := range map[string][]string{
		`{"holders":`:                    {"show", "/a", "--server"},
		`{"layouts":["of tomorrow"]}`:    {"show", "/b", "--server"},
		`{"locks":0}`:                    {"ls", "--server"},
		`{"edges":[{"from":0,"to":1}]}`:  {"wait-graph", "--server"},
		`{"edges":[{"from":-1,"to":0}]}`: {"wait-graph", "/a", "--server"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(body))
		}))
		out, errs, code := runIn(t, map[string]string{"ZLOCK_ADMIN": s.Listener.Addr().String()}, args...)
		s.Close()
		expect.That(t, code != 0 && strings.Contains(errs, "not understood"),
			"%s: exit %d, %s%s", body, code, out, errs)
	}
}
