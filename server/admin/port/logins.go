package port

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Super reports whether a user is the super user. It compares in constant time. If it is nil, there is no
// super user.
type Super func(user, password string) bool

// User returns the name of the super user who makes a request. If the server has no super user, User refuses
// the request with a text that begins with the parameter `off`.
func (s Super) User(r *http.Request, off string) (user string, no *Refusal) {
	if s == nil {
		return "", Refuse(http.StatusForbidden, "%s: start zlockd with --super-digest", off)
	}
	user, password, digest := Credentials(r)
	if !digest {
		return "", Refuse(http.StatusUnauthorized, "Auth info is missing for the command")
	}
	if user == "" || !s(user, password) {
		if failed, heard := r.Context().Value(loginKey{}).(func(*http.Request, string)); heard {
			failed(r, user)
		}
		time.Sleep(failedLogin)
		return "", Refuse(http.StatusForbidden, "Not authorized")
	}
	return user, nil
}

// Sees reports whether a request that only reads may see all names. A request with the super user's password
// sees all names. A request without a password sees only the names that every client may list. A request with
// a wrong password is refused.
func (s Super) Sees(r *http.Request) (all bool, no *Refusal) {
	if _, _, digest := Credentials(r); s == nil || !digest {
		return false, nil
	}
	_, no = s.User(r, "")
	return no == nil, no
}

// NoNames returns a text for an answer that leaves out some names. `count` is how many names it leaves out,
// and `what` says what they name, such as "locks". NoNames returns "" if `count` is 0.
func NoNames(count int, what string) string {
	if count == 0 {
		return ""
	}
	return strconv.Itoa(count) + " " + what + " below nodes that world:anyone may not read: " +
		"ask with the super user's password"
}

// failedLogin is how long Super.User delays the answer to a wrong password.
const failedLogin = 100 * time.Millisecond

// loginKey is the key, in a request's context, of the function that is told of failed logins.
type loginKey struct{}

// HearLogins returns a handler that runs h and calls failed() for each login that fails. If another handler
// of HearLogins is around the returned one, the function of the outer handler is called first.
func HearLogins(h http.Handler, failed func(r *http.Request, user string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hear := failed
		if outer, both := r.Context().Value(loginKey{}).(func(*http.Request, string)); both {
			hear = func(r *http.Request, user string) {
				outer(r, user)
				failed(r, user)
			}
		}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), loginKey{}, hear)))
	})
}

// Credentials returns the user and the password of a request. The form is that of ZooKeeper's admin server,
// Authorization: digest USER:PASSWORD. For another scheme the result `digest` is false. If no colon follows
// the scheme, the user is empty, because the whole text may be a password.
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
