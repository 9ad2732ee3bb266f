package port

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Super reports whether the user and the password are the super user's. It compares in constant time. A nil
// Super means that there is no super user.
type Super func(user, password string) bool

// User returns the name of the super user if the request comes from that user, and otherwise a refusal. If
// there is no super user, the text of the refusal begins with `off`.
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

// Sees reports whether a request may see all names: it may with the super user's password. Without a password
// it may see only those that every client may list. With a wrong password it is refused.
func (s Super) Sees(r *http.Request) (all bool, no *Refusal) {
	if _, _, digest := Credentials(r); s == nil || !digest {
		return false, nil
	}
	_, no = s.User(r, "")
	return no == nil, no
}

// NoNames returns the remark that an answer lacks `count` names. `what` is the kind of things that they name,
// such as "locks". It returns "" if nothing is missing.
func NoNames(count int, what string) string {
	if count == 0 {
		return ""
	}
	return strconv.Itoa(count) + " " + what + " below nodes that world:anyone may not read: " +
		"ask with the super user's password"
}

// failedLogin is how long Super.User delays the answer to a wrong password.
const failedLogin = 100 * time.Millisecond

// loginKey is the key in a request's context for the function that hears of failed logins.
type loginKey struct{}

// HearLogins wraps h, so that failed() is called for each failed login. If several wraps are around a
// handler, all their functions are called, the outermost first.
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

// Credentials returns the user and the password of a request, which has them as in ZooKeeper's admin server:
// Authorization: digest USER:PASSWORD. `digest` is false for another scheme. Without a colon the user is
// empty, because the text may then be a password.
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
