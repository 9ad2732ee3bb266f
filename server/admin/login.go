package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// failedLogin is how long Login delays the answer to a wrong password.
const failedLogin = 100 * time.Millisecond

// loginKey is the key of a request's context at which the admin port keeps the function
// that Login calls when a login fails.
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

// Credentials returns the user and the password that a request names in the form of ZooKeeper's
// admin server, Authorization: digest USER:PASSWORD. digest is false for another scheme; a header
// without a colon names no user, because all of it may be a password.
func Credentials(r *http.Request) (user, password string, digest bool) {
	scheme, credentials, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "digest") {
		return "", "", false
	}
	user, password, ok := strings.Cut(credentials, ":")
	if !ok {
		return "", credentials, true
	}
	return user, password, true
}

// Login checks that a request names a user and a password that check knows; see
// Credentials. Only then it returns the user.
func Login(r *http.Request, check func(user, password string) bool) (user string, code int, problem string) {
	user, password, digest := Credentials(r)
	if !digest {
		return "", http.StatusUnauthorized, "Auth info is missing for the command"
	}
	if user == "" || !check(user, password) {
		if failed, known := r.Context().Value(loginKey{}).(func(*http.Request, string)); known {
			failed(r, user)
		}
		time.Sleep(failedLogin)
		return "", http.StatusForbidden, "Not authorized"
	}
	return user, http.StatusOK, ""
}
