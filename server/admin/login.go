package admin

import (
	"net/http"
	"strings"
	"time"
)

// failedLogin is how long a wrong password costs whoever tries it.
const failedLogin = 100 * time.Millisecond

// Login decides whether a request names a user and a password that check knows,
// as ZooKeeper's admin server wants them: Authorization: digest USER:PASSWORD.
// The user is named only if it does.
func Login(r *http.Request, check func(user, password string) bool) (user string, code int, problem string) {
	scheme, credentials, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "digest") {
		return "", http.StatusUnauthorized, "Auth info is missing for the command"
	}
	user, password, ok := strings.Cut(credentials, ":")
	if !ok || !check(user, password) {
		time.Sleep(failedLogin)
		return "", http.StatusForbidden, "Not authorized"
	}
	return user, http.StatusOK, ""
}
