package port

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Refusal is the answer to a request that the server refuses.
type Refusal struct {
	Status int
	Text   string
}

func (r *Refusal) Error() string { return r.Text }

// Answer sends the refusal as the answer to a command, in the layout of ZooKeeper's AdminServer. It ignores
// errors of writing, because a client that has left needs no answer.
func (r *Refusal) Answer(w http.ResponseWriter, command string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.Status)
	fmt.Fprintf(w, "{\n  \"command\" : %s,\n  \"error\" : %s\n}", quoted(command), quoted(r.Text))
}

// quoted returns a text in the form of a JSON string.
func quoted(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // encoding a string never fails
	return strings.TrimSuffix(b.String(), "\n")
}

// Refuse returns a Refusal. It makes the text as fmt.Sprintf does.
func Refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{status, fmt.Sprintf(format, args...)}
}

// Reads refuses a request whose method is neither GET nor HEAD. The refusal names the page.
func Reads(w http.ResponseWriter, r *http.Request, page string) *Refusal {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	w.Header().Set("Allow", "GET, HEAD")
	return Refuse(http.StatusMethodNotAllowed, "use GET for %s", page)
}

// Posts refuses a request that is not a POST. Links and pages of other sites cannot make a browser send a
// POST with a password.
func Posts(w http.ResponseWriter, r *http.Request) *Refusal {
	if r.Method == http.MethodPost {
		return nil
	}
	w.Header().Set("Allow", http.MethodPost)
	return Refuse(http.StatusMethodNotAllowed, "This command changes state: use POST")
}
