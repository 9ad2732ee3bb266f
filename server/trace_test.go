package server

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/server/admin"
)

// TestTracePageFollowsOneRequest: one of the server's own, and the next of a
// session, for the super user alone.
func TestTracePageFollowsOneRequest(t *testing.T) {
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
		{"?session=x", super, 400, "is no id"}, {"?session=0", super, 400, "is no id"}, {"?wait=1h", super, 400, "is no duration"},
		{"?session=0x4711&wait=1ms", super, 503, "asked for no change here"},
	} {
		if code, text := ask(bad.query, bad.login); code != bad.code || !strings.Contains(text, bad.says) {
			t.Errorf("%q as %q: %d %q", bad.query, bad.login, code, text)
		}
	}
	code, text := ask("", super)
	if code != 200 || !regexp.MustCompile(`(?s)^server 1 \(it leads\), an empty request.*given to raft\n.*applied: OK, zxid`).MatchString(text) {
		t.Errorf("its own: %d %s", code, text)
	}
	// The client asks until the trace has begun: what came before is not seen.
	type answer struct {
		code int
		text string
	}
	got := make(chan answer, 1)
	go func() {
		code, text := ask(fmt.Sprintf("?session=%#x", c.Session.ID), super)
		got <- answer{code, text}
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		create(t, c, fmt.Sprintf("/traced-%d", n), 0)
		select {
		case a := <-got:
			if a.code != 200 || !regexp.MustCompile(`(?s)session 0x.*read from the connection\n.*create, \d+ bytes.*in the outbox.*the operating system has the reply\n$`).MatchString(a.text) {
				t.Errorf("a client's: %d %s", a.code, a.text)
			}
			return
		case <-tick.C:
		}
	}
}

func TestTraceIsOffWithoutASuperUser(t *testing.T) {
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0"})
	resp, err := http.Get("http://" + i.AdminAddr() + "/debug/trace")
	must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Error(resp.Status)
	}
}
