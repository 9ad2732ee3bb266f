package ticket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A client that cancels a lock_take does not learn the name of the ticket. So the ticket is given back.
func TestMCPGivesBackWhatACancelledCallTook(t *testing.T) {
	came, answer, given := make(chan string, 1), make(chan struct{}), make(chan string, 1)
	port := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret := r.Header.Get("Zlock-Ticket")
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNoContent)
			given <- secret
			return
		}
		came <- secret
		<-answer
		_, _ = io.WriteString(w, `{"v":1,"held":true,"token":"7","ttlMs":600000,"safeMs":400000}`)
	}))
	t.Cleanup(port.Close)
	dir := t.TempDir()
	a := startAgent(t, port.URL, dir)
	a.initialize()
	id := a.send("tools/call", `{"name":"lock_take","arguments":{"path":"/a","reason":"b"}}`)
	secret := <-came
	a.write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
	expect.Equal(t, a.ask("ping", `{}`).Error, nil, "no answer comes to the cancelled request")
	close(answer)
	select {
	case got := <-given:
		expect.Equal(t, got, secret, "the secret of the ticket that is given back")
	case <-time.After(20 * time.Second):
		t.Fatal("the ticket stays")
	}
	must.Await(t, "the ticket has no file", time.Minute, func() bool {
		return len(must.Get(os.ReadDir(dir))(t)) == 0
	})
	a.end()
}

// answers is an HTTP transport that calls a function in place of a server.
type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A long wait ends soon after the last server has gone.
func TestMCPWaitGivesUpWithoutServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, left := t.TempDir(), 3
		const name = "t-aaaaaaaaaaaa"
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(Text(NewSecret(), "/a")), 0o600))
		l := &lockTools{dir: dir, patience: time.Minute, caller: &Caller{URLs: []string{"http://a"},
			HTTP: &http.Client{Transport: answers(func(r *http.Request) (*http.Response, error) {
				if left--; left < 0 {
					return nil, errors.New("there is no server")
				}
				time.Sleep(must.Get(time.ParseDuration(r.URL.Query().Get("wait")))(t))
				return &http.Response{StatusCode: http.StatusAccepted, Header: http.Header{},
					Body: io.NopCloser(strings.NewReader(`{"v":1,"position":1,"of":2,"ttlMs":600000}`))}, nil
			})}}}
		began := time.Now()
		r := l.wait(t.Context(), json.RawMessage(`{"ticket":"`+name+`","wait_seconds":600}`))
		expect.Equal(t, r["isError"], any(true), "%v", r)
		expect.Equal(t, time.Since(began), 3*laterWait+laterWait+time.Minute, "a call that no server answers")
	})
}

// If one server hangs, a call still reaches the other servers, however little time it has. The next call
// begins with the server that answered. One call asks all servers within the time that its caller gives.
func TestServerThatHangsLeavesTimeForOthers(t *testing.T) {
	for wait, most := range map[time.Duration]time.Duration{0: 4 * time.Second, 10 * time.Second: 14 * time.Second,
		5 * time.Second: time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var asked []string
			k := &Caller{URLs: []string{"http://hangs", "http://busy", "http://good"},
				HTTP: &http.Client{Transport: answers(func(r *http.Request) (*http.Response, error) {
					asked = append(asked, r.URL.Host)
					body := `{"v":1,"error":"busy","text":"later"}`
					code := http.StatusServiceUnavailable
					switch r.URL.Host {
					case "hangs":
						<-r.Context().Done()
						return nil, r.Context().Err()
					case "good":
						time.Sleep(must.Get(time.ParseDuration(r.URL.Query().Get("wait")))(t))
						body, code = `{"v":1,"position":1,"of":2,"ttlMs":600000}`, http.StatusAccepted
					}
					return &http.Response{StatusCode: code, Header: http.Header{},
						Body: io.NopCloser(strings.NewReader(body))}, nil
				})}}
			ask := func() {
				t.Helper()
				asked = nil
				ctx, cancel := context.WithTimeout(t.Context(), most)
				defer cancel()
				a, err := k.Ask(ctx, http.MethodPost, "/v1/locks/a", url.Values{"wait": {wait.String()}}, nil)
				must.OK(t, err, "wait %v of %v", wait, most)
				expect.Equal(t, a.Position, 1)
			}
			began := time.Now()
			ask()
			took := time.Since(began)
			expect.List(t, asked, []string{"hangs", "busy", "good"})
			expect.That(t, took <= wait+answerTime && took < most, "wait %v of %v: it takes %v", wait, most, took)
			began = time.Now()
			ask()
			expect.List(t, asked, []string{"good"}, "the second time")
			expect.Equal(t, time.Since(began), wait, "the second time")
		})
	}
}
