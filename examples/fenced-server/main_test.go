package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/test/must"
)

func TestFormerHolderIsRefusedEvenAfterARestart(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct {
		name  string
		lock  string
		token fence.Token
		want  int
	}{
		{"plan", "/locks/plan", 41, 200},
		{"plan", "/locks/plan", 57, 200},
		{"plan", "/locks/plan", 41, 412},
		{"plan", "/locks/plan", 41, 412},
		{"x%2Fplan", "/locks/plan", 60, 403},
		{"plan", "/locks/other", 60, 403},
		{"other", "/locks/other", 1, 200},
	} {
		// Each step uses a new server, which knows only the tokens on disk.
		h := must.Get(newServer(dir))(t)
		r := httptest.NewRequest("PUT", "/"+step.name, strings.NewReader("by "+step.token.String()))
		r.Header.Set(fence.Header, fence.Sequencer{Path: step.lock, Node: "n", Mode: fence.Exclusive,
			Token: step.token}.String())
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != step.want {
			t.Errorf("%+v: %d %s", step, w.Code, w.Body)
		}
	}
	h := must.Get(newServer(dir))(t)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/plan", nil))
	if b, _ := io.ReadAll(w.Body); w.Code != http.StatusOK || string(b) != "by 57" {
		t.Errorf("the document holds %q", b)
	}
}
