package port

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Refusal is the answer to a request that the server refuses.
type Refusal struct {
	Status int
	Text   string
}

func (r *Refusal) Error() string { return r.Text }

// Answer answers a request for a command with the refusal, in the layout of ZooKeeper's AdminServer. A client
// that has left needs no answer.
func (r *Refusal) Answer(w http.ResponseWriter, command string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.Status)
	fmt.Fprintf(w, "{\n  \"command\" : %s,\n  \"error\" : %s\n}", quoted(command), quoted(r.Text))
}

// quoted returns a text as JSON has it.
func quoted(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a text can be encoded
	return strings.TrimSuffix(b.String(), "\n")
}

// Refuse returns a Refusal; its text is that of fmt.Sprintf.
func Refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{status, fmt.Sprintf(format, args...)}
}

// Reads refuses a request whose method does more than read. The refusal names the page.
func Reads(w http.ResponseWriter, r *http.Request, page string) *Refusal {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	w.Header().Set("Allow", "GET, HEAD")
	return Refuse(http.StatusMethodNotAllowed, "use GET for %s", page)
}

// Posts refuses a request that is not a POST: links and pages of other sites cannot send one with a
// password.
func Posts(w http.ResponseWriter, r *http.Request) *Refusal {
	if r.Method == http.MethodPost {
		return nil
	}
	w.Header().Set("Allow", http.MethodPost)
	return Refuse(http.StatusMethodNotAllowed, "This command changes state: use POST")
}

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

// NoNames returns a text for an answer that does not show the names of count things, such as locks. It
// returns "" if count is 0.
func NoNames(count int, what string) string {
	if count == 0 {
		return ""
	}
	return strconv.Itoa(count) + " " + what + " below nodes that world:anyone may not read: " +
		"ask with the super user's password"
}

// failedLogin is how long Super.User delays the answer to a wrong password.
const failedLogin = 100 * time.Millisecond

// loginKey is the key of a request's context for the function that hears of failed logins.
type loginKey struct{}

// HearLogins returns a handler that calls failed() for each login that fails, after the functions of the
// handlers around it.
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
// Authorization: digest USER:PASSWORD. The result digest is false for another scheme. For a header without a
// colon the user is empty, because the whole text may be a password.
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

// Paced is one direction of a connection. It gives up on a client that is too slow: the client may
// take until End, and a second more for each MiB.
type Paced struct {
	io.Reader
	io.Writer
	// Deadline sets the deadline of the connection. Its errors do not matter: a writer of a test, for
	// example, has no deadlines.
	Deadline func(time.Time) error
	End      time.Time
}

const leastRate = 1 << 20 // bytes per second

func (p *Paced) do(b []byte, do func([]byte) (int, error)) (int, error) {
	_ = p.Deadline(p.End)
	n, err := do(b)
	p.End = p.End.Add(time.Duration(n) * time.Second / leastRate)
	return n, err
}

func (p *Paced) Read(b []byte) (int, error) { return p.do(b, p.Reader.Read) }

func (p *Paced) Write(b []byte) (int, error) { return p.do(b, p.Writer.Write) }
