package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// failedLogin is how long Super.User delays the answer to a wrong password.
const failedLogin = 100 * time.Millisecond

// loginKey is the key of a request's context at which the admin port keeps the function
// that Super.User calls when a login fails.
type loginKey struct{}

// notesLogins counts and logs the failed logins of a handler.
func (a *Admin) notesLogins(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			r = r.WithContext(context.WithValue(r.Context(), loginKey{}, a.loginFailed))
		}
		h.ServeHTTP(w, r)
	})
}

// loginFailed counts a failed login, and logs at most one of them a second: a program
// that tries many passwords must not fill the disk.
func (a *Admin) loginFailed(r *http.Request, user string) {
	count := a.loginsFailed.Add(1)
	now, last := a.o.Now().Unix(), a.loginLogged.Load()
	if now != last && a.loginLogged.CompareAndSwap(last, now) {
		a.o.Log.Warn("login failed", "user", fmt.Sprintf("%.64s", user), "from", r.RemoteAddr, "path",
			fmt.Sprintf("%.128s", r.URL.Path), "failed", count)
	}
}
