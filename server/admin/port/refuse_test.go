package port

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestAnswerOfARefusal(t *testing.T) {
	w := httptest.NewRecorder()
	Refuse(http.StatusConflict, "no %s", `"<a>"`).Answer(w, "do\n")
	expect.Equal(t, w.Code, http.StatusConflict)
	expect.Equal(t, w.Header().Get("Content-Type"), "application/json")
	var got struct{ Command, Error string }
	must.OK(t, json.Unmarshal(w.Body.Bytes(), &got))
	expect.Equal(t, got.Command, "do\n")
	expect.Equal(t, got.Error, `no "<a>"`)
}

// Reads admits only the methods GET and HEAD, and Posts admits only the method POST.
func TestMethodsOfRequests(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "POST", "PUT"} {
		r, reads, posts := httptest.NewRequest(method, "/", nil), httptest.NewRecorder(), httptest.NewRecorder()
		refused := []bool{Reads(reads, r, "it") != nil, Posts(posts, r) != nil}
		allow := []string{reads.Header().Get("Allow"), posts.Header().Get("Allow")}
		read, post := method == "GET" || method == "HEAD", method == "POST"
		expect.List(t, refused, []bool{!read, !post}, "%s", method)
		for i, is := range []string{"GET, HEAD", "POST"} {
			expect.Equal(t, allow[i] == is, refused[i], "%s is told that %q is allowed", method, allow[i])
		}
	}
}

// A caller with the super user's password sees all names, and a caller without a password sees some. A wrong
// password is refused after a delay, and reported to the functions that HearLogins got.
func TestLogins(t *testing.T) {
	super := Super(func(user, password string) bool { return user+" "+password == "super 1" })
	for login, want := range map[string]struct {
		user, heard string
		code        int  // the status of a request that only the super user may make
		all         bool // whether the caller sees all names
		read        int  // the status of a request that everyone may make
	}{
		"":               {code: 401},
		"Basic super:1":  {code: 401},
		"digest super:1": {user: "super", all: true},
		"DIGEST super:1": {user: "super", all: true},
		"digest super:2": {heard: "super", code: 403, read: 403},
		"digest :1":      {heard: "", code: 403, read: 403},
		"digest super1":  {heard: "", code: 403, read: 403},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Authorization", login)
			var heard []string
			h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				code := func(no *Refusal) int {
					if no == nil {
						return 0
					}
					return no.Status
				}
				began := time.Now()
				user, no := super.User(r, "it is off")
				expect.Equal(t, fmt.Sprint(user, code(no)), fmt.Sprint(want.user, want.code), "%q", login)
				expect.Equal(t, time.Since(began) >= failedLogin, want.code == 403, "%q waits", login)
				all, no := super.Sees(r)
				expect.Equal(t, fmt.Sprint(all, code(no)), fmt.Sprint(want.all, want.read), "%q", login)

				_, no = Super(nil).User(r, "it is off")
				must.Equal(t, code(no), http.StatusForbidden)
				expect.Has(t, no.Text, "it is off: start zlockd with --super-digest")
				all, no = Super(nil).Sees(r)
				expect.Equal(t, fmt.Sprint(all, code(no)), "false 0")
			})
			hear := func(by string) func(*http.Request, string) {
				return func(_ *http.Request, user string) { heard = append(heard, by+user) }
			}
			HearLogins(HearLogins(h, hear("inner ")), hear("outer ")).ServeHTTP(nil, r)
			if want.code == 403 {
				both := []string{"outer " + want.heard, "inner " + want.heard}
				expect.List(t, heard, append(both, both...), "%q", login)
			} else {
				expect.Equal(t, len(heard), 0, "%q: failed logins", login)
			}
		})
	}
	expect.Equal(t, NoNames(0, "locks"), "")
	expect.Has(t, NoNames(3, "locks"), "3 locks below nodes that world:anyone may not read")
}
