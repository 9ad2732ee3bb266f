package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The trace page records what the server does, with a mark for each step of a
// request, for the super user alone.
func TestTracePageRecordsTheStepsOfRequests(t *testing.T) {
	i, c := start(t, Options{AdminAddr: "127.0.0.1:0", Admin: admin.Options{
		Authorize: func(user, password string) bool { return user == "super" && password == "secret" }}})
	ask := func(query, login string) (int, string) {
		req, err := http.NewRequest("GET", "http://"+i.AdminAddr()+"/debug/trace"+query, nil)
		if err != nil {
			return 0, err.Error()
		}
		if login != "" {
			req.Header.Set("Authorization", login)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(b)
	}
	const super = "digest super:secret"
	for _, bad := range []struct {
		query, login string
		code         int
		says         string
	}{
		{"", "", 401, "Auth info"}, {"", "digest super:wrong", 403, "Not authorized"},
		{"?wait=1h", super, 400, "is no duration"},
	} {
		if code, text := ask(bad.query, bad.login); code != bad.code || !strings.Contains(text, bad.says) {
			t.Errorf("%q as %q: %d %q", bad.query, bad.login, code, text)
		}
	}
	got := make(chan string, 1)
	go func() {
		code, text := ask("?wait=200ms", super)
		expect.Equal(t, code, http.StatusOK, "%d %s", code, text)
		got <- text
	}()
	for n := 0; ; n++ {
		create(t, c, fmt.Sprintf("/traced-%d", n), 0)
		select {
		case text := <-got:
			for _, step := range []string{"goes into this server's stream", "are taken, in a block",
				"are given to raft", "is in the log", "is applied"} {
				expect.Has(t, text, step, "no step %q in the trace of %d bytes", step, len(text))
			}
			return
		default:
		}
	}
}

func TestTraceIsOffWithoutASuperUser(t *testing.T) {
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0"})
	resp := must.Get(http.Get("http://" + i.AdminAddr() + "/debug/trace"))(t)
	defer resp.Body.Close()
	expect.Equal(t, resp.StatusCode, http.StatusForbidden, "%v", resp.Status)
}
